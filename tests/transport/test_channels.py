"""What a channel says of itself once it is closed: who reads it may be in the middle of asking."""

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
