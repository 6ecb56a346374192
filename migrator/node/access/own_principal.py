"""Checks before a node joins the quorum that its principal is a super user of its peers.

Access control entries are known only after the election of a leader. Voters that have their rights only from entries
could therefore never elect a leader after a stop of all controllers. Source: ``StandardAuthorizer``, KIP-801.
"""

from __future__ import annotations

import logging

from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.wire.identity import authentication_of, shown_by
from migrator.wire.security import ListenerSecurity

log = logging.getLogger(__name__)


def check_own_principal(settings: Settings, security: ListenerSecurity) -> None:
    """Check this node's principal. All controllers share one list of super users, so the node's own list shows what its
    peers will answer.

    :param security: the security of the controller listener.
    :raises OperatorError: this node is no super user, or its certificate gives no name.
    """
    if not settings.authorizer_class_name or len(settings.voters) == 1:
        return
    try:
        principal = authentication_of(security).principal_of(shown_by(security))
    except ValueError as error:
        raise OperatorError(
            f"the rules give the certificate of this node no name: {error}",
            where=f"{settings.source}: ssl.principal.mapping.rules",
            remedy="Add a rule for this certificate, or DEFAULT at the end",
        ) from error
    if principal is None:
        log.warning(
            "The principal of this node is known only after its login. Add the principal to super.users of every "
            "controller"
        )
    elif principal not in settings.super_user_names:
        raise OperatorError(
            f"the key does not name {principal}, for which the other controllers take this node: without a leader no "
            "access control entries are known, so after a stop of all controllers none could be elected",
            where=f"{settings.source}: super.users",
            remedy=f"Add {principal} to super.users of every controller, with ';' between names",
        )
