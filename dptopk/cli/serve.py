"""``dptopk serve``: the HTTP service and its page."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.service.catalog import Catalog


def serve(
    catalog: Annotated[
        Path | None, typer.Argument(help="TOML file: data sets, budgets, limits (docs/service.md).")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve Macbeth and made-up events, and print two tokens.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen at; TLS is a reverse proxy's work.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 = any that is free.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes.")] = 1,
    check: Annotated[
        bool,
        typer.Option("--check", help="Say what is wrong with the catalog, its data and its ledger; serve nothing."),
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Change the ledger's terms to the catalog's, with --reason; serve nothing.")
    ] = False,
    reason: Annotated[str, typer.Option(help="With --apply: why; the ledger keeps it.")] = "",
    reload: Annotated[
        bool, typer.Option("--reload", help="Let the workers that run read the catalog again; serve nothing.")
    ] = False,
) -> None:
    """Let analysts ask over HTTP, see what it costs, and share a budget."""
    import uvicorn

    from dptopk.service.catalog import Catalog

    if demo == (catalog is not None):
        raise InvalidParameter("give a catalog, or --demo")
    if demo and (check or apply or reload):
        raise InvalidParameter("--check, --apply and --reload are for a catalog, not for --demo")
    if catalog is not None and (check or apply or reload):
        _operate(catalog, reason if apply else None, reload=reload)
        return
    if host not in {"127.0.0.1", "::1", "localhost"}:
        typer.echo(f"warning: --host {host}: tokens and answers travel unencrypted: put TLS before it", err=True)
    _free(host, port)
    with tempfile.TemporaryDirectory(prefix="dptopk-demo-") as folder:
        if demo:
            from dptopk.service.demo import demo_catalog, tokens

            served = demo_catalog(Path(folder))
            catalog = Path(folder) / "catalog.toml"
            _greet(host, port, tokens(served))
        else:
            served = Catalog.load(str(catalog))
        options: dict[str, Any] = {
            "host": host,
            "port": port,
            "http": "dptopk.service.connections:Timely",
            "ws": "none",
        }
        options |= {"log_level": "warning", "access_log": False, "server_header": False}
        if workers > 1:
            os.environ["DPTOPK_CATALOG"] = str(Path(str(catalog)).absolute())
            uvicorn.run("dptopk.service.app:from_environment", factory=True, workers=workers, **options)
        else:
            _run(served, options)


def _operate(catalog: Path, reason: str | None, *, reload: bool) -> None:
    """Apply the catalog's terms where a reason is given; then say what is wrong, and let the workers read it again."""
    from dptopk.service import check, terms
    from dptopk.service.catalog import Catalog
    from dptopk.service.tables import RELOAD, Tables

    if reason is not None:
        for changed in terms.apply(Catalog.load(catalog), reason):
            typer.echo(f"changed: {changed}")
    found = check.check(catalog)
    for one in found:
        typer.echo(str(one))
    if any(one.refused for one in found):
        raise typer.Exit(1)
    if reload:
        tables = Tables(Catalog.load(catalog).access)
        tables.change(tables.add(Tables.settings, RELOAD, 1), durable=True)
        tables.close()
    typer.echo("The workers will read it within some seconds." if reload else "The catalog can be served.")


def _run(catalog: Catalog, options: dict[str, Any]) -> None:
    import uvicorn

    from dptopk.service.app import create_app

    uvicorn.run(create_app(catalog), **options)


def _free(host: str, port: int) -> None:
    """Refuse an address that cannot be listened at, before anything is promised about it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise InvalidParameter(f"--host {host} --port {port}: {error.strerror}") from None


def _greet(host: str, port: int, tokens: dict[str, str]) -> None:
    typer.echo(f"Serving at http://{host}:{port}/  (stop with Ctrl-C; nothing is kept)")
    for analyst, token in tokens.items():
        typer.echo(f"token of {analyst}: {token}")
