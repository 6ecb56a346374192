"""The encoder of passwords in ZooKeeper, from a broker's or controller's settings."""

from __future__ import annotations

import os

from migrator.config.settings import Settings
from migrator.zookeeper.znodes.passwords import PasswordEncoder


def password_encoder(settings: Settings) -> PasswordEncoder:
    """The encoder with the parameters of ``password.encoder.*``.

    :raises ZnodeError: the algorithms are unknown.
    """
    secret = settings.password_encoder_secret
    return PasswordEncoder(
        None if secret is None else secret.reveal(),
        os.urandom,
        key_factory=settings.password_encoder_keyfactory_algorithm,
        cipher=settings.password_encoder_cipher_algorithm,
        key_bits=settings.password_encoder_key_length,
        iterations=settings.password_encoder_iterations,
    )
