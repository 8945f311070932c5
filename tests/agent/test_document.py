"""Conformance to openapi.yaml: schemathesis sends valid and invalid requests to every operation."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.specs.openapi.checks import positive_data_acceptance

from jupyter_slurm.agent.api import routes, sse
from jupyter_slurm.agent.api.schema import load_document
from jupyter_slurm.agent.hosting import discovery
from jupyter_slurm.agent.hosting.agent_host import serve_in_thread
from jupyter_slurm.agent.hosting.endpoint import Endpoint, endpoint_at
from jupyter_slurm.services.connections.pending_prompts import PromptQueue

# All of the file: other stages do not collect it, for whose operations schemathesis takes seconds in each worker.
pytestmark = [pytest.mark.slow, pytest.mark.alone]

_LONG = 1000
# `make test-nightly` chooses a profile with more.
EXAMPLES = settings.default.max_examples // 20


def _without_long(part: Any) -> Any:
    """Remove the bounds of long texts and lists, whose generation takes a minute each; test_api.py has examples."""
    if isinstance(part, list):
        return [_without_long(each) for each in part]
    if not isinstance(part, dict):
        return part
    bounds = [name for name in ("maxLength", "maxItems", "maxProperties") if isinstance(part.get(name), int)]
    left_out = {name for name in bounds if part[name] >= _LONG}
    return {name: _without_long(value) for name, value in part.items() if name not in left_out}


document = schemathesis.openapi.from_dict(_without_long(load_document().spec))

# Other tests end the agent; streams are cut short below.
asked = document.exclude(operation_id="stopAgent")


@pytest.fixture
def endpoint(make_settings: Any, core: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """Provide the application on a port, as schemathesis requires; an event stream ends at its first heartbeat."""

    async def ended() -> Any:
        return
        yield

    async def briefly(handler: Any, events: Any, until: Any, **_: object) -> None:
        await sse.send_events(handler, ended(), until)

    core.desk = PromptQueue("local", core.bus, timeout=0.1)  # no user answers
    monkeypatch.setattr(routes, "send_events", functools.wraps(sse.send_events)(briefly))
    settings = make_settings(agent_host="inprocess", agent_socket="tcp")
    agent = serve_in_thread(settings, core)
    assert agent is not None
    found = endpoint_at(discovery.search_locations(settings)[0])
    assert found is not None
    yield found
    agent.stop()


@asked.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_implementation_keeps_to_the_document(case: Case, endpoint: Endpoint) -> None:
    # A schema does not say whether a cell makes sense, or a job exists: valid requests may be refused too.
    case.call_and_validate(
        base_url=endpoint.base_url, headers=endpoint.headers, excluded_checks=[positive_data_acceptance]
    )
