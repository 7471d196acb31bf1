"""A stand-in for W&B's server on loopback: as much of its API as the clients call here, and the
ways in which it fails.

It records the conversation: `calls` (operation, variables), `history` (rows by run and step),
`runs` (what UpsertBucket said, merged), `files` (uploads), `artifacts` (what
CreateArtifact said) with `inputs`, `views` (reports)."""

import contextlib
import gzip
import http.server
import json
import re
import threading
import time
from collections.abc import Iterator
from typing import Any


class Stub(http.server.ThreadingHTTPServer):
    """`failure` may be set at any time: "silent", "500", "401" or "nonsense"."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.calls: list[tuple[str, Any]] = []
        self.history: dict[str, dict[int, dict[str, Any]]] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.summaries: dict[str, dict[str, Any]] = {}
        self.exits: dict[str, int] = {}
        self.files: dict[str, bytes] = {}
        self.views: dict[str, dict[str, Any]] = {}
        self.artifacts: dict[str, dict[str, Any]] = {}
        self.inputs: list[str] = []  # names of artifacts that a run has used
        self.failure: str | None = None

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up is no news."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def operations(self) -> list[str]:
        return [name for name, _ in self.calls]

    def steps(self, run: str) -> list[int]:
        return sorted(self.history.get(run, {}))

    def answer(self, operation: str, sent: dict[str, Any]) -> dict[str, Any] | None:
        known = getattr(self, f"on_{operation}", None)
        return known(sent) if known else None

    def on_Viewer(self, _: Any) -> dict[str, Any]:  # noqa: N802 - the API's own names, here and below
        teams = {"edges": [{"node": {"name": "stub"}}]}
        who = {key: "stub" for key in ("id", "entity", "username", "name", "email")}
        return {"viewer": {**who, "flags": "{}", "admin": False, "teams": teams}}

    def on_ServerFeaturesQuery(self, _: Any) -> dict[str, Any]:  # noqa: N802
        return {"serverInfo": {"features": []}}

    def on_UpsertBucket(self, sent: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        run = self.runs.setdefault(sent["name"], {})
        run |= {key: value for key, value in sent.items() if value is not None}
        return {"upsertBucket": {"bucket": self.bucket(sent["name"]), "inserted": True}}

    def bucket(self, name: str) -> dict[str, Any]:
        run = self.runs[name]
        project = {"id": "p", "name": run.get("project"), "entity": {"id": "e", "name": "stub"}}
        names = {"id": f"b-{name}", "name": name, "displayName": run.get("displayName") or name}
        shown = {"description": "", "config": run.get("config"), "sweepName": None}
        count = len(self.history.get(name, {}))
        return {**names, **shown, "project": project, "historyLineCount": count}

    def on_RunResumeStatus(self, sent: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        entity = {"id": "e", "name": "stub"}
        if sent["name"] not in self.runs:
            return {"model": {"id": "p", "name": sent["project"], "entity": entity, "bucket": None}}
        rows = self.history.get(sent["name"], {})
        last = [json.dumps(rows[max(rows)])] if rows else []
        before = {"config": "{}", "tags": [], "wandbConfig": '{"t": 1}', "summaryMetrics": "{}"}
        tails = {"historyTail": json.dumps(last), "eventsTail": json.dumps(['{"_runtime": 5}'])}
        answer = {**self.bucket(sent["name"]), **before, **tails}
        answer |= {"eventsLineCount": 0, "logLineCount": 0}
        return {"model": {"id": "p", "name": sent["project"], "entity": entity, "bucket": answer}}

    def on_CreateRunFiles(self, sent: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        place = f"{self.url}/upload/{sent['run']}"
        files = [{"name": name, "uploadUrl": f"{place}/{name}"} for name in sent["files"]]
        return {"createRunFiles": {"runID": sent["run"], "uploadHeaders": [], "files": files}}

    def on_ArtifactType(self, _: Any) -> dict[str, Any]:  # noqa: N802
        return {"project": {"artifact": None}}

    def on_CreateArtifact(self, sent: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        """Say that the files are there already, so that the client sends none."""
        asked = sent["input"]
        name = f"artifact{len(self.artifacts)}"
        self.artifacts[name] = asked
        sequence = {"id": "s", "latestArtifact": None}
        return {
            "createArtifact": {
                "artifact": {"id": name, "state": "COMMITTED", "artifactSequence": sequence}
            }
        }

    def on_UseArtifact(self, sent: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        self.inputs.append(self.artifacts[sent["input"]["artifactID"]]["artifactCollectionName"])
        return {"useArtifact": {"artifact": {"id": sent["input"]["artifactID"]}}}

    def on_GetDefaultEntity(self, sent: Any) -> dict[str, Any]:  # noqa: N802
        return {"viewer": {**self.on_Viewer(sent)["viewer"], "defaultEntity": {"name": "stub"}}}

    def on_GetProjects(self, _: Any) -> dict[str, Any]:  # noqa: N802
        return {"models": {"edges": [], "pageInfo": {"endCursor": None, "hasNextPage": False}}}

    def on_CreateProject(self, sent: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        project = {"id": "p", "name": sent.get("name"), "entityName": "stub", "description": ""}
        project["access"] = "PRIVATE"
        made = {"project": project, "model": project, "inserted": True}
        return {"upsertModel": made, "result": made}

    def on_upsertView(self, sent: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        name = sent.get("id") or f"view{len(self.views)}"
        self.views[name] = sent
        project = {"id": "p", "name": sent["projectName"], "entityName": sent["entityName"]}
        shown = {key: sent[key] for key in ("name", "displayName", "description", "type", "spec")}
        times = dict.fromkeys(("createdAt", "updatedAt"), "2026-01-01T00:00:00Z")
        view = {**shown, "id": name, "project": project, **times}
        return {"upsertView": {"view": view, "inserted": True}}

    def stream(self, run: str, sent: dict[str, Any]) -> None:
        files = sent.get("files") or {}
        rows = files.get("wandb-history.jsonl")
        for line in rows["content"] if rows else ():
            row = json.loads(line)
            if row["_step"] in self.history.setdefault(run, {}):
                raise AssertionError(f"step {row['_step']} of {run} was sent twice")
            self.history[run][row["_step"]] = row
        summary = files.get("wandb-summary.json")
        if summary:
            self.summaries[run] = json.loads(summary["content"][-1])
        if sent.get("complete"):
            self.exits[run] = sent["exitcode"]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Stub

    def do(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if self.server.failure == "silent":
            time.sleep(600)
        if self.server.failure in ("500", "401"):
            self.reply(int(self.server.failure), {"errors": [{"message": "not today"}]})
            return
        if self.server.failure == "nonsense":
            self.reply(200, {"data": {"viewer": 7, "upsertBucket": [], "model": "?"}})
            return
        if self.path == "/graphql":
            request = json.loads(body)
            operation = re.search(r"\b(?:query|mutation)\s+(\w+)", request["query"])
            name, sent = operation[1] if operation else "?", request.get("variables") or {}
            self.server.calls.append((name, sent))
            answer = self.server.answer(name, sent)
            errors = [{"message": f"{name} is not offered here"}] if answer is None else []
            self.reply(200, {"data": answer} | ({"errors": errors} if errors else {}))
        elif self.path.endswith("/file_stream"):
            sent = json.loads(body)
            self.server.calls.append(("file_stream", None))
            self.server.stream(self.path.split("/")[-2], sent)
            self.reply(200, {"exitcode": None, "limits": {}})
        elif self.path.startswith("/upload/"):
            self.server.files[self.path.removeprefix("/upload/")] = body
            self.reply(200, {})
        else:
            self.server.calls.append(("unknown", {"path": self.path, "method": self.command}))
            self.reply(404, {})

    def reply(self, code: int, content: Any) -> None:
        text = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""


@contextlib.contextmanager
def serving() -> Iterator[Stub]:
    server = Stub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
