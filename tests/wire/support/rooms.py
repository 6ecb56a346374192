"""Requests with an account, without the connection that they came from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from migrator.wire.book import Account, Book, Caller, Charge, Part, Room, Share, Stage
from migrator.wire.requests import Request


def no_cut_off(reason: str) -> None:
    raise AssertionError(reason)


def answers_of(book: Book) -> Room:
    """To those with rights on the cluster."""
    return book.rooms[Part.RIGHTS, Stage.ANSWERING]


def book_with_answers(limit: int) -> Book:
    """With room for so many bytes of them."""
    book = Book()
    answers_of(book).limit = limit
    return book


class Asked:
    """A request of a broker of its own."""

    def __init__(self, book: Book, cut_off: Callable[[str], None] = no_cut_off) -> None:
        account = Account(book, Caller(Share.BROKERS, self), 5.0)
        self.charge: Charge = account.open(cut_off)
        self.request = Request(self.charge, account, nullcontext)

    def end(self) -> None:
        self.charge.close()
