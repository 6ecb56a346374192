"""JAAS entries in property files. What each text means was asked of Kafka 3.9.1's ``JaasContext.loadClientContext``."""

from __future__ import annotations

import pytest

from migrator.errors import OperatorError
from migrator.wire.jaas import jaas_options
from migrator.wire.listener_keys import ListenerKeys

KEY = "plain.sasl.jaas.config"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def options(text: str) -> dict[str, str]:
    return jaas_options(ListenerKeys({KEY: text}, "controller"), "PLAIN")[1]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('required user_a="x" /* user_old="y" */ user_b="z";', {"user_a": "x", "user_b": "z"}),
        ('required user_a="x" // user_old="y";\n user_b="z";', {"user_a": "x", "user_b": "z"}),
        ("required user_a='x y';", {"user_a": "x y"}),
        ('required "user_a@b"="x";', {"user_a@b": "x"}),
        (r'required user_a="p\"q\\r\101\n";', {"user_a": 'p"q\\rA\n'}),
        (r'required user_a="\8\400\78";', {"user_a": "8 0\x078"}),
        ("required user_a=secret-1.2;", {"user_a": "secret-1.2"}),
        ('REQUIRED user_a = "x" user_a="y";', {"user_a": "y"}),
        ('required user_a="";', {"user_a": ""}),
        ('required user_ä="ö";', {"user_ä": "ö"}),
        ("required;", {}),
        ('"required" user_a=$x_;/* x */', {"user_a": "$x_"}),
    ],
)
def test_what_counts(text: str, found: dict[str, str]) -> None:
    assert options(f"{PLAIN} {text}") == found


@pytest.mark.parametrize(
    "text",
    [
        f'{PLAIN} required user_a="x"; {PLAIN} required user_secret="y";',
        f'{PLAIN} required user_a="x", user_secret="y";',
        f'{PLAIN} required user_secret@b="x";',
        f"{PLAIN} required user_secret=1;",
        f"{PLAIN} required user_secret=-x;",
        f"{PLAIN} required user_secret=ab/cd;",
        f'{PLAIN} required user_secret="x"',
        f'{PLAIN} required user_secret="x";;',
        f'{PLAIN} maybe user_secret="x";',
        f'{PLAIN} required user_secret="x\ny";',
        f'{PLAIN} required user_a="x" user_secret;',
        f"{PLAIN} required user_secret==x;",
        f'{PLAIN} required "user_secret',
        f'{PLAIN} required /* user_secret="x";',
        f'{PLAIN} required user_secret="a"; # x',
        f"{PLAIN}",
        ";",
        'com.acme.PlainLoginModule required user_secret="x";',
        'PlainLoginModule required user_secret="x";',
    ],
)
def test_what_kafka_does_not_start_with_is_refused_without_a_word_of_it(text: str) -> None:
    with pytest.raises(OperatorError) as refused:
        options(text)
    assert KEY in str(refused.value)
    assert "secret" not in str(refused.value)
