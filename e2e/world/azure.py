"""Azure as the host sees it: IMDS on its link-local address, Entra and a depot over TLS."""

import ssl
import threading
import time
from pathlib import Path

from e2e.world.conduct import Instructions
from e2e.world.depot import ADDRESS as DEPOT_ADDRESS
from e2e.world.depot import Depot
from e2e.world.entra import Entra
from e2e.world.identity import Issuance
from e2e.world.imds import Imds
from e2e.world.pki import load_signing_key
from e2e.world.tokens import Signer
from e2e.world.web import RequestLog, Website

STATE = Path("/world")
IMDS_ADDRESS = ("169.254.169.254", 80)
ENTRA_ADDRESS = ("127.0.0.1", 443)


def issuance_of(instructions: Instructions) -> Issuance:
    """Return the present time with the token lifetime that tests ask for."""
    return Issuance(now=time.time, lifetime=lambda: instructions.current().token_lifetime)


def registered() -> bytes:
    """Return the service principal's certificate, which a test leaves there once it has one."""
    path = STATE / "client.pem"
    return path.read_bytes() if path.exists() else b""


def main() -> None:
    """Serve all until killed."""
    signer = Signer(load_signing_key(STATE / "signing.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(STATE / "server.pem")
    orders = {name: Instructions(STATE / f"{name}.json") for name in ("imds", "entra", "depot")}
    imds = Imds(signer=signer, issuance=issuance_of(orders["imds"]))
    entra = Entra(signer=signer, issuance=issuance_of(orders["entra"]), registered=registered)
    depot = Depot(STATE / "depot")
    sites = (
        Website(IMDS_ADDRESS, imds, RequestLog(STATE / "imds.jsonl"), orders["imds"]),
        Website(ENTRA_ADDRESS, entra, RequestLog(STATE / "entra.jsonl"), orders["entra"], tls),
        Website(DEPOT_ADDRESS, depot, RequestLog(STATE / "depot.jsonl"), orders["depot"], tls),
    )
    threads = [threading.Thread(target=site.serve_forever) for site in sites]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
