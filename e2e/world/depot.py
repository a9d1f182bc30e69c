"""A server of releases: the files of a directory, for those whose query is signed."""

import hashlib
import re
from pathlib import Path

from e2e.world.web import Request, Response, answer

ADDRESS = ("127.0.0.1", 8443)
HOST = "releases.lab"
SIGNATURE = "sig"
"""The query parameter without which nothing is served; what it holds is nobody's business."""

_NAME = re.compile(r"/([A-Za-z0-9][A-Za-z0-9._-]*)")
_FROM = re.compile(r"bytes=([0-9]{1,15})-")


class Depot:
    """Serves files whole, or from a byte on; `If-Range` must name the file that is there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, request: Request) -> Response:
        """Answer one request."""
        name = _NAME.fullmatch(request.path)
        path = self._directory / name[1] if name else self._directory
        if not request.query.get(SIGNATURE):
            return answer(403, {"error": "AuthenticationFailed"})
        if request.method != "GET" or not path.is_file():
            return answer(404, {"error": "BlobNotFound"})
        content = path.read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Accept-Ranges": "bytes"}
        wanted = _FROM.fullmatch(request.headers.get("range", ""))
        start = int(wanted[1]) if wanted and request.headers.get("if-range") == tag else 0
        if 0 < start < len(content):
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            return Response(
                status=206, body=content[start:], content_type="application/gzip", headers=headers
            )
        return Response(body=content, content_type="application/gzip", headers=headers)
