"""Streams of bytes between machines: what TCP promises, over wires that delay, cut in one direction, and break.

Bytes arrive in their order or not at all; how they are cut into pieces is the seed's. A wire that is cut holds what is
sent (TCP sends it again later); a process that is gone closes its connections, a machine that is gone says nothing.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.whole.machine import SimulatedMachine
    from tests.simulation.whole.world import World

KERNEL_BYTES = 256 * 1024
"""What two kernels hold between a writer and a reader that does not read."""
ACKNOWLEDGED_BYTES = 16 * 1024
FIRST_PORT = 40_000
RETRANSMISSION_SECONDS = (0.05, 1.0)
"""After a wire is whole again, TCP finds out."""
END = b""
"""In an inbox: nothing more comes."""


class Network:
    """All wires and addresses."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self.listening: dict[tuple[str, int], ListeningSocket] = {}
        self.machines_off: set[str] = set()
        """Hosts whose power is cut."""
        self.cut: dict[tuple[str, str], float] = {}
        """Wires that carry nothing now, each in one direction, and since when."""
        self._held: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self.mended_at: dict[str, float] = {}
        """When a wire to or from each host was mended last."""
        self.slow: dict[str, float] = {}
        """By what the delays to and from a host are multiplied."""
        self.refusing: set[str] = set()
        """Hosts whose listeners are not reached: something in front of them refuses each connection."""
        self._ports = FIRST_PORT
        self._ends: dict[str, list[End]] = {}

    # Addresses.

    def listen(self, machine: SimulatedMachine, port: int) -> ListeningSocket:
        port = port or self.next_port()
        if (machine.host, port) in self.listening:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        sock = self.listening[machine.host, port] = ListeningSocket(self, machine, port)
        return sock

    def next_port(self) -> int:
        self._ports += 1
        return self._ports

    async def connect(self, machine: SimulatedMachine, host: str, port: int) -> End:
        """
        :raises OSError: nobody listens there.
        """
        found: asyncio.Future[End] = machine.loop.create_future()
        there, back = (machine.host, host), (host, machine.host)

        def refuse() -> None:
            if not found.done():
                found.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)))

        def accept(end: End) -> None:
            if found.done():
                end.abort()
            else:
                found.set_result(end)

        def arrive() -> None:
            if host in self.machines_off:
                return
            listening = self.listening.get((host, port))
            if listening is None or host in self.refusing:
                self.carry(back, lambda: machine.tell(refuse))
                return
            ours = End(self, machine, (machine.host, self.next_port()))
            ours.peer = theirs = End(self, listening.machine, (host, port))
            theirs.peer = ours
            listening.arrived(theirs)
            self.carry(back, lambda: machine.tell(accept, ours))

        self.carry(there, arrive)
        return await found

    # Wires.

    def carry(self, wire: tuple[str, str], action: Callable[[], object]) -> None:
        """Do something at the other end, some time later."""
        world = self._world
        world.at(world.now + self.delay(wire), partial(self._arrive, wire, action))

    def _arrive(self, wire: tuple[str, str], action: Callable[[], object]) -> None:
        if wire in self.cut:
            self._held.setdefault(wire, []).append(partial(self._arrive, wire, action))
        else:
            action()

    def delay(self, wire: tuple[str, str]) -> float:
        world, random = self._world, self._random
        options = world.options
        delay = random.uniform(options.delay_ms_min, options.delay_ms_max) / 1000
        if self.slow:
            delay *= max(self.slow.get(wire[0], 1.0), self.slow.get(wire[1], 1.0))
        if world.faults_go_on and not world.chaos.calm.is_on and random.random() < options.loss:
            delay += random.uniform(*RETRANSMISSION_SECONDS)
        return delay

    def cut_wire(self, wire: tuple[str, str]) -> None:
        self.cut.setdefault(wire, self._world.now)

    def mend_wire(self, wire: tuple[str, str]) -> None:
        """What was held arrives in its order, once TCP sends it again."""
        if wire not in self.cut:
            return
        del self.cut[wire]
        self.mended_at |= dict.fromkeys(wire, self._world.now)
        held = self._held.pop(wire, [])
        at = self._world.now + self._random.uniform(*RETRANSMISSION_SECONDS)
        for arrive in held:
            self._world.at(at, arrive)

    # The ends of machines.

    def reset_connections(self, host: str) -> None:
        """Break all connections of a host, as a firewall that has forgotten them."""
        for end in [end for end in self._ends.get(host, ()) if not end.is_closed]:
            end.peer.broken()
            end.broken()

    def opened(self, end: End) -> None:
        self._ends.setdefault(end.machine.host, []).append(end)

    def ends_of(self, machine: SimulatedMachine) -> list[End]:
        """Those that are open."""
        ends = self._ends[machine.host] = [end for end in self._ends.get(machine.host, ()) if not end.is_closed]
        return [end for end in ends if end.machine is machine]

    def process_gone(self, machine: SimulatedMachine, *, with_its_machine: bool) -> None:
        """The kernel closes what the process had open; a machine without power does not."""
        for address in [address for address, sock in self.listening.items() if sock.machine is machine]:
            del self.listening[address]
        for end in self.ends_of(machine):
            if with_its_machine:
                end.is_closed = True
            else:
                end.abort()


class ListeningSocket:
    """What `SimulatedLoop.sock_accept` takes connections from."""

    def __init__(self, network: Network, machine: SimulatedMachine, port: int) -> None:
        self._network = network
        self.machine = machine
        self.port = port
        self._arrived: deque[End] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def arrived(self, end: End) -> None:
        self._arrived.append(end)
        if self._waiter is not None:
            self.machine.loop.from_outside(_wake, self._waiter)

    async def accept(self) -> tuple[End, tuple[str, int]]:
        while not self._arrived:
            self._waiter = self.machine.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        end = self._arrived.popleft()
        return end, end.peer.address

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def getsockname(self) -> tuple[str, int]:
        return self.machine.host, self.port

    def close(self) -> None:
        if self._network.listening.get((self.machine.host, self.port)) is self:
            del self._network.listening[self.machine.host, self.port]
        for end in self._arrived:
            end.abort()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class End:
    """One end of a connection, as its kernel has it; a socket until a protocol is attached."""

    peer: End

    def __init__(self, network: Network, machine: SimulatedMachine, address: tuple[str, int]) -> None:
        self.network = network
        self.machine = machine
        self.address = address
        self.inbox: deque[bytes] = deque()
        self.unread = 0
        """Bytes that have been sent and not been read at the other end."""
        self._read = 0
        """Of these, what was read there and not acknowledged."""
        self.is_closed = False
        self.is_reset = False
        self._on_wire: deque[Callable[[], object]] = deque()
        self.transport: Stream | None = None
        network.opened(self)

    @property
    def wire(self) -> tuple[str, str]:
        return self.machine.host, self.peer.machine.host

    def attach(self, protocol: Any) -> Stream:
        self.transport = Stream(self, protocol)
        return self.transport

    def close(self) -> None:
        """Of a socket that nothing is attached to."""
        self.abort()

    # Sending.

    def send(self, data: bytes) -> None:
        """Towards the peer, in one piece or in two."""
        self.unread += len(data)
        random = self.machine.chance
        pieces = [data]
        if len(data) > 1 and random.random() < self.machine.world.options.split:
            cut = random.randrange(1, len(data))
            pieces = [data[:cut], data[cut:]]
        for piece in pieces:
            self._carry(partial(self.peer.arrived, piece))

    def send_end(self) -> None:
        self._carry(partial(self.peer.arrived, END))

    def _carry(self, action: Callable[[], object]) -> None:
        """Bytes arrive in the order in which they were sent."""
        self._on_wire.append(action)
        self.network.carry(self.wire, self._arrive)

    def _arrive(self) -> None:
        self._on_wire.popleft()()

    def abort(self) -> None:
        """Break the connection; the peer hears of it."""
        if not self.is_closed:
            self.is_closed = True
            self._carry(self.peer.broken)

    # Receiving.

    def arrived(self, data: bytes) -> None:
        if self.machine.host in self.network.machines_off:
            return
        if self.is_closed or not self.machine.is_alive:
            if data is not END:
                self._carry(self.peer.broken)  # nobody has such a connection here
            return
        self.inbox.append(data)
        if self.transport is not None:
            self.transport.readable()

    def broken(self) -> None:
        if self.is_closed or not self.machine.is_alive:
            return
        self.is_closed = self.is_reset = True
        if self.transport is not None:
            self.machine.loop.from_outside(self.transport.lost, ConnectionResetError(errno.ECONNRESET, "reset by peer"))

    def was_read(self, size: int) -> None:
        """The peer has taken so many bytes. This end hears of many at once: few do not make a writer wait."""
        self._read += size
        if self._read >= ACKNOWLEDGED_BYTES:
            self.network.carry(self.peer.wire, partial(self._acknowledged, self._read))
            self._read = 0

    def _acknowledged(self, size: int) -> None:
        self.unread -= size
        if self.transport is not None and self.machine.is_alive:
            self.transport.drained()


class Stream(asyncio.Transport):
    """The transport of a protocol that is attached to an end."""

    def __init__(self, end: End, protocol: Any) -> None:
        super().__init__({"peername": end.peer.address, "sockname": end.address})
        self._end = end
        self._loop = end.machine.loop
        self._protocol = protocol
        self._high, self._low = 64 * 1024, 16 * 1024
        self._is_paused = False
        self._writing_is_paused = False
        self._is_closing = False
        self._is_lost = False
        self._will_read = False
        self._loop.call_soon(protocol.connection_made, self)
        if end.is_reset:
            self._loop.call_soon(self.lost, ConnectionResetError(errno.ECONNRESET, "reset by peer"))
        self._loop.call_soon(self.readable)

    # Reading.

    def readable(self) -> None:
        """The kernel has something."""
        if not self._will_read and not self._is_paused and self._end.inbox and not self._is_closing:
            self._will_read = True
            self._loop.from_outside(self._read)

    def _read(self) -> None:
        self._will_read = False
        if self._is_paused or self._is_closing or not self._end.inbox:
            return
        data = self._end.inbox.popleft()
        if data is END:
            if not self._protocol.eof_received():
                self.close()
            return
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(-1))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            if size < len(data):
                self._end.inbox.appendleft(data[size:])
            self._end.peer.was_read(size)
            protocol.buffer_updated(size)
        else:
            self._end.peer.was_read(len(data))
            protocol.data_received(data)
        self.readable()

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self.readable()

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    # Writing.

    def write(self, data: Any) -> None:
        if self._is_closing or not data or self._end.is_closed or not self._end.machine.is_alive:
            return
        self._end.send(bytes(data))
        if not self._writing_is_paused and self.get_write_buffer_size() > self._high:
            self._writing_is_paused = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return max(0, self._end.unread - KERNEL_BYTES)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def drained(self) -> None:
        """The peer has read something."""
        if self._writing_is_paused and self.get_write_buffer_size() <= self._low:
            self._writing_is_paused = False
            self._loop.from_outside(self._protocol.resume_writing)
        if self._is_closing and not self.get_write_buffer_size():
            self._close_now()

    # Closing.

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if not self.get_write_buffer_size():
            self._close_now()

    def _close_now(self) -> None:
        if not self._end.is_closed:
            self._end.send_end()
            self._end.is_closed = True
        self._loop.from_outside(self.lost, None)

    def abort(self) -> None:
        self._is_closing = True
        self._end.abort()
        self._loop.call_soon(self.lost, None)

    def lost(self, error: Exception | None) -> None:
        """Tell the protocol, once."""
        if not self._is_lost:
            self._is_closing = self._is_lost = True
            self._protocol.connection_lost(error)

    def get_protocol(self) -> Any:
        return self._protocol
