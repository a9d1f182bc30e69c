"""Two keys for all tests of tokens: every process that collects the tests makes them."""

from e2e.world.pki import make_signing_key
from e2e.world.tokens import Signer

FORGERY = make_signing_key()
SIGNER, STRANGER = Signer(make_signing_key()), Signer(FORGERY)
