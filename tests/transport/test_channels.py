"""State of a closed channel, whose reader may be in the middle of a call."""

import pytest

pytestmark = [pytest.mark.root]


@pytest.mark.parametrize("carrier", ["paramiko", "openssh"])
async def test_a_channel_that_was_closed_has_nothing_and_says_so(login_host, connect_by, carrier):
    link = connect_by(carrier, login_host).link
    channel = await link.open_session(30)
    channel.exec_command("cat")
    assert (channel.closed, channel.recv_ready()) == (False, False)
    channel.close()
    assert (channel.recv_ready(), channel.recv_stderr_ready(), channel.closed) == (False, False, True)
