"""The agent: one object that holds what must outlive a cell, and the client through which every front door reaches it.

::

    discovery    where the agent's socket is, and whether that place can be trusted (standard library only)
    leader_election  one leader per user and machine: lock, listening socket, record
    schema       openapi.yaml as routes and validators
    app, routes  the HTTP API, version 1;  sse  its event streams
    json_encoding  JSON of requests and answers
    presence     who uses a cluster, as long as a connection of theirs is there
    hosting      the agent inside a loop, a thread or a process;  daemon  the process of its own
    launcher     finding or starting one;  async_client  connections to it;  client  what front doors call

Nothing here is imported by ``%load_ext``.
"""
