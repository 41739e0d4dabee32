from __future__ import annotations

import socket

import pytest

from bathyscope.lab import ports


def test_a_listening_port_is_not_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert not ports.free(port)
    assert ports.free(port)


def test_pair_is_neighbouring_free_and_not_taken() -> None:
    assert len(set(ports.choose(3, set()))) == 3
    first, second = ports.choose(2, set())
    assert second == first + 1
    assert 20_000 <= first < 32_000
    assert ports.free(first)
    assert ports.free(second)


def test_ports_of_other_labs_are_avoided_even_when_they_are_free_now() -> None:
    odd_or_even_of_every_pair = set(range(20_000, 32_001)) - {25_000, 25_001}
    assert ports.choose(2, odd_or_even_of_every_pair, attempts=200_000) == (25_000, 25_001)


def test_no_port_left_is_an_error_and_no_endless_loop() -> None:
    with pytest.raises(OSError, match="free ports"):
        ports.choose(2, range(20_000, 32_001))
