"""The agent, which holds all state that must outlive a cell, and the client that front ends use to reach it.

::

    discovery    where the agent's socket is, and whether that place can be trusted (standard library only)
    leader_election  one leader per user and machine: lock, listening socket, record
    schema       openapi.yaml as routes and validators
    app, routes  the HTTP API, version 1;  sse  its event streams
    json_encoding  JSON of requests and answers
    presence     users of a cluster, as long as one of their connections exists
    agent_host   the agent inside a loop, a thread or a process;  daemon  the separate process
    launcher     finding or starting an agent;  async_client  connections;  agent_client  the front ends' calls

``%load_ext`` imports no module of this package.
"""
