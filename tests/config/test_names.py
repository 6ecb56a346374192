"""Mapping rules of principals. What each gives was asked of Kafka 3.9.1's ``SslPrincipalMapper``."""

from __future__ import annotations

import pytest

from migrator.config.names import map_name, parse_mapping_rules


@pytest.mark.parametrize(
    ("rule", "name", "mapped"),
    [
        (r"RULE:^.*$/admin/", "CN=bob,O=x", "admin"),
        (r"RULE:.*/admin/", "CN=bob,O=x", "adminadmin"),
        (r"RULE:CN=(.*?),OU=.*?/$1/", "CN=a,OU=b", "ab"),
        (r"RULE:^CN=(\w+).*$/$1/", "CN=adminé,O=x", "admin"),
        (r"RULE:^CN=(.*?),O=(.*)$/$1\/$2/", "CN=a,O=b", "a/b"),
        (r"RULE:^CN=(.*?),O=(.*)$/$1\.$2/L", "CN=A,O=b", "a.b"),
        (r"RULE:^CN=(.*?),O=(.*)$/$1\n/", "CN=A,O=b", "An"),
        (r"RULE:^CN=(.*?),O=(.*)$/$12/", "CN=a,O=b", "a2"),
        (r"RULE:^CN=(.*?),O=(.*)$/$0/", "CN=a,O=b", "CN=a,O=b"),
        (r"RULE:^CN=(.*)$/$01/", "CN=b", "b"),
        (r"RULE:^CN=b$/\$1/", "CN=b", "$1"),
        (r"RULE:^CN=(b)$/\1/", "CN=b", "1"),
        (r"RULE:^CN=(a)|CN=(b)$/$1/", "CN=b", ""),
        (r"RULE:(?i)^cn=(B)$/$1/U", "CN=b", "B"),
    ],
)
def test_what_rules_make_of_names(rule: str, name: str, mapped: str) -> None:
    assert map_name(name, parse_mapping_rules(rule)) == mapped


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (r"RULE:^CN=(\d+)$/$1/", "CN=٣"),
        (r"RULE:^CN=(\s+)x$/$1/", "CN=\xa0x"),
        (r"RULE:^CN=(.*),O=x$/$1/U", "CN=a\nb,O=x"),
        (r"RULE:^CN=(\w+).*$/$1/", "CN=admin\rx"),
        (r"RULE:^CN=(\w+).*$/$1/", "CN=admin\u2028x"),
    ],
)
def test_names_that_no_rule_is_about(rule: str, name: str) -> None:
    with pytest.raises(ValueError, match="no rule"):
        map_name(name, parse_mapping_rules(rule))


@pytest.mark.parametrize(
    "rule",
    [
        r"RULE:^CN=([a-z&&[^x]]+),.*$/$1/",
        r"RULE:^(?<n>CN=b)$/${n}/",
        r"RULE:^CN=(.*?),O=(.*)$/$1@$3/",
        r"RULE:^CN=b$/$1/",
        r"RULE:^CN=(b)$/x$/",
        r"RULE:^CN=(b$/x/",
        "",
        " ",
    ],
)
def test_rules_that_mean_something_else_in_java_or_nothing_are_refused_at_the_start(rule: str) -> None:
    with pytest.raises(ValueError, match=r"names none|regular expression|no rule|neither"):
        parse_mapping_rules(rule)
