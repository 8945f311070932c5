"""Tests of the poller's schedule: on a simulated clock, in real tasks."""

import asyncio
import itertools

import pytest

from jupyter_slurm.errors import ControllerError, Throttled
from jupyter_slurm.services.slurm.poller import Poller
from jupyter_slurm.services.slurm.rate_limit import TokenBucket


class World:
    """Simulated monotonic seconds: ``asyncio.sleep`` and timeouts of the event loop use them."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: self.now)
        self.asked: list[float] = []
        self.changes: list[float] = []
        self.silent_until = self.broken_until = 0.0
        self.needed = False
        self.waited_for = False
        self.told = 0

    def tell(self):
        self.told += 1

    def is_needed(self):
        return self.needed

    def is_waited_for(self):
        return self.waited_for

    async def poll_once(self):
        self.asked.append(self.now)
        if self.now < self.broken_until:
            raise RecursionError("what one job has left")
        if self.now < self.silent_until:
            raise ControllerError("no answer")
        return any(self.now - 10 < change <= self.now for change in self.changes)

    async def go(self, seconds, step=0.5):
        end = self.now + seconds
        while self.now < end:
            self.now += step
            for _ in range(6):
                await asyncio.sleep(0)


@pytest.fixture
async def world(monkeypatch):
    return World(monkeypatch)


@pytest.fixture
async def watcher(world):
    watcher = Poller(world, min_interval=10, max_interval=300, clock=lambda: world.now)
    watcher.on_change.append(world.tell)
    watcher.start()
    yield watcher
    await watcher.stop()


def gaps(asked):
    return [b - a for a, b in itertools.pairwise(asked)]


async def test_interval_grows_to_minutes_while_nothing_changes(world, watcher):
    world.needed = True
    watcher.wake()
    await world.go(3600)
    assert min(gaps(world.asked)) >= 10
    assert gaps(world.asked)[-1] == pytest.approx(300, abs=1)
    assert gaps(world.asked) == sorted(gaps(world.asked))


async def test_never_more_often_than_the_shortest_interval_whoever_hurries(world, watcher):
    world.needed = True
    for _ in range(600):
        watcher.wake()
        await world.go(0.5)
    assert len(world.asked) <= 300 / 10 + 1
    assert min(gaps(world.asked)) >= 10


async def test_a_change_makes_it_look_more_often_again(world, watcher):
    world.needed = True
    watcher.wake()
    await world.go(1200)
    slow = gaps(world.asked)[-1]
    world.changes.append(world.now + 50)
    await world.go(slow + 60)
    watcher.wake()
    before = len(world.asked)
    await world.go(30)
    assert len(world.asked) - before >= 2


async def test_somebody_in_front_of_a_screen_waits_half_a_minute_at_most(world, watcher):
    world.needed = True
    world.waited_for = True
    watcher.wake()
    await world.go(1200)
    assert max(gaps(world.asked)) <= 31


async def test_who_begins_to_wait_in_a_long_pause_waits_half_a_minute_at_most(world, watcher):
    world.needed = True
    watcher.wake()
    await world.go(1200)
    last = world.asked[-1]
    await world.go(max(0, last + 100 - world.now))
    world.waited_for, begun = True, world.now
    await world.go(41)
    assert [asked for asked in world.asked if asked > begun]


async def test_silent_controller_is_asked_less_and_less(world, watcher):
    world.needed = True
    world.silent_until = world.now + 900
    watcher.wake()
    await world.go(900)
    assert watcher.error is not None
    assert watcher.status()["failing_for"] == pytest.approx(900, abs=1)
    assert gaps(world.asked)[-1] > gaps(world.asked)[0]
    assert world.told == 1
    await world.go(700)
    assert watcher.error is None
    assert world.told == 2
    assert watcher.status()["failing_for"] is None


async def test_nothing_is_asked_while_there_is_nothing_to_ask_about(world, watcher):
    await world.go(600)
    assert world.asked == []
    world.needed = True
    watcher.wake()
    await world.go(1)
    assert len(world.asked) == 1
    world.needed = False
    await world.go(600)
    assert len(world.asked) == 1
    world.needed = True  # a client needs the state, without an event
    await world.go(11)
    assert len(world.asked) == 2


async def test_fresh_answer_serves_everybody_for_a_while(world, watcher):
    await asyncio.gather(*(watcher.wait_fresh() for _ in range(20)))
    assert len(world.asked) == 1
    await world.go(11)
    await watcher.wait_fresh()
    assert len(world.asked) == 2


async def test_fresh_tells_what_is_wrong(world, watcher):
    world.silent_until = world.now + 100
    with pytest.raises(ControllerError):
        await watcher.wait_fresh()


@pytest.mark.parametrize(("interval", "burst", "rate"), [(10, 15, 0.15), (30, 3, 1 / 30), (60, 3, 1 / 60)])
async def test_early_looks_keep_the_mean(world, interval, burst, rate):
    watcher = Poller(world, min_interval=interval, max_interval=300, clock=lambda: world.now)
    watcher.start()
    world.needed = world.waited_for = True
    begun = world.now
    early = []
    while world.now < begun + 1800:
        watcher.wake()
        if await watcher.poll_early():
            early.append(world.now)
        await world.go(0.5)
    await watcher.stop()
    assert len(world.asked) <= burst + 1800 * rate + 1
    assert len([at for at in world.asked if at < begun + 9]) >= burst - 1


async def test_an_early_look_in_vain_does_not_make_the_interval_longer(world, watcher):
    world.needed = True
    assert await watcher.poll_early()
    assert watcher.interval == 10
    world.silent_until = world.now + 5
    await world.go(1)
    assert not await watcher.poll_early()
    assert watcher.error is not None
    await world.go(1)
    assert not await watcher.poll_early()
    assert len(world.asked) == 2  # a silent controller is not asked early


async def test_early_looks_of_several_jobs_are_one_query(world, watcher):
    assert all(await asyncio.gather(*(watcher.poll_early() for _ in range(20))))
    assert len(world.asked) == 1


def test_bucket_lets_a_burst_go_and_slows_a_loop_down():
    now = 0.0
    bucket = TokenBucket(rate=0.1, burst=10, clock=lambda: now)
    assert [bucket.reserve() for _ in range(10)] == [0.0] * 10
    assert not bucket.is_ready()
    assert bucket.reserve() == pytest.approx(10)
    now = 10.0
    assert bucket.reserve() == pytest.approx(10)


async def test_nobody_stands_in_line_for_longer_than_is_worth_it():
    now = 0.0
    bucket = TokenBucket(rate=0.1, burst=2, clock=lambda: now)
    for _ in range(2):
        await bucket.acquire(max_wait=15)
    first = asyncio.create_task(bucket.acquire(max_wait=15))  # ten seconds to wait
    await asyncio.sleep(0)
    for _ in range(3):
        with pytest.raises(Throttled) as caught:
            await bucket.acquire(max_wait=15)
        assert caught.value.details == {"retry_after": 20}  # a refused query does not take the place of another
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert bucket.reserve() == pytest.approx(10)


async def test_what_goes_wrong_with_one_job_does_not_end_the_looks_at_all(world, watcher):
    world.needed, world.broken_until = True, world.now + 60
    watcher.wake()
    await world.go(120)
    assert world.asked[0] < world.broken_until
    assert world.asked[-1] > world.broken_until
    assert len(world.asked) <= 13  # it is not accelerated, either
