"""The driver's end of the connection to a scoring process."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from grpo_trainer.rewards.channel import Channel
from grpo_trainer.rewards.worker import encode


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = await Channel.open(ours)
    with theirs:
        yield channel, theirs
    channel.close()


async def test_messages_that_arrive_together_are_received_together(ends):
    channel, other = ends
    other.sendall(encode(1) + encode("two") + encode([3]))

    await channel.wait()

    assert channel.received() == [1, "two", [3]]
    assert channel.received() == []


async def test_a_message_in_parts_is_received_once_it_is_whole(ends):
    channel, other = ends
    data = encode("x" * 1000)
    waiting = asyncio.create_task(channel.wait())
    for part in (data[:2], data[2:500], data[500:]):
        assert not waiting.done()
        other.sendall(part)
        await asyncio.wait({waiting}, timeout=0.05)

    await waiting
    assert channel.received() == ["x" * 1000]


async def test_what_arrived_before_the_other_end_closed_is_received(ends):
    channel, other = ends
    other.sendall(encode("last"))
    other.close()

    await channel.wait()

    assert channel.received() == ["last"]
    with pytest.raises(ConnectionError):
        await channel.wait()


async def test_a_message_that_cannot_be_read_closes_the_connection(ends):
    channel, other = ends
    other.sendall(b"\x03\x00\x00\x00???")

    with pytest.raises(ConnectionError):
        await channel.wait()


async def test_closing_ends_a_call_that_waits(ends):
    channel, _ = ends
    waiting = asyncio.create_task(channel.wait())
    await asyncio.sleep(0)

    channel.close()

    with pytest.raises(ConnectionError):
        await waiting
