"""``dptopk serve``: the HTTP service and its page."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dptopk.errors import InvalidParameter, LedgerError
from dptopk.service.catalog_file import load as load_catalog

if TYPE_CHECKING:
    from dptopk.service.catalog import Catalog


def serve(
    catalog: Annotated[
        Path | None, typer.Argument(help="TOML file: data sets, budgets, limits (docs/service.md).")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve Macbeth and made-up events, and print two tokens.")
    ] = False,
    host: Annotated[
        str, typer.Option(help="Address to listen at; TLS is a reverse proxy's work.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 = any that is free.")] = 8000,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Number of processes that answer.")
    ] = 1,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Say what is wrong with the catalog, its data and its ledger; serve nothing.",
        ),
    ] = False,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Change the ledger's terms to the catalog's, with --reason; serve nothing.",
        ),
    ] = False,
    reason: Annotated[str, typer.Option(help="With --apply: why; the ledger keeps it.")] = "",
    reload: Annotated[
        bool,
        typer.Option(
            "--reload", help="Let the workers that run read the catalog again; serve nothing."
        ),
    ] = False,
) -> None:
    """Let analysts ask over HTTP, see what it costs, and share a budget."""
    if reason and not apply:
        raise InvalidParameter("--reason goes with --apply: nothing else changes terms")
    maintains = check or apply or reload
    if catalog is None:
        if not demo:
            raise InvalidParameter("give a catalog, or --demo")
        if maintains:
            raise InvalidParameter(
                "--check, --apply and --reload are for a catalog, not for --demo"
            )
        _serve_demo(host, port, workers)
        return
    if demo:
        raise InvalidParameter("give a catalog, or --demo")
    if maintains:
        _maintain(catalog, reason, apply=apply, reload=reload)
        return
    _prepare_address(host, port)
    _run(load_catalog(catalog), host, port, workers)


def _maintain(catalog: Path, reason: str, *, apply: bool, reload: bool) -> None:
    """Check a catalog, and change what was asked for; nothing is served.

    Args:
        catalog: the catalog's file.
        reason: why the terms change.
        apply: whether the ledger's terms are changed to the catalog's before.
        reload: whether the workers that run read the catalog again.

    Raises:
        InvalidParameter: for a catalog that cannot be read, or a change without a reason.
        LedgerError: when something differs that never changes.
        typer.Exit: with code 1, if the catalog cannot be served.
    """
    if apply:
        _apply_terms(catalog, reason)
    _refuse_unfit_catalog(catalog)
    if reload:
        _ask_workers_to_reload(catalog)
    else:
        typer.echo("The catalog can be served.")


def _serve_demo(host: str, port: int, workers: int) -> None:
    """Serve data of examples from a folder that is deleted at the end, and print two tokens.

    Args:
        host: the address to listen at.
        port: the port; 0: any that is free.
        workers: the number of processes.
    """
    _prepare_address(host, port)
    # Without this handler SIGTERM ends the process at once and leaves the folder.
    signal.signal(signal.SIGTERM, _exit_on_signal)
    with tempfile.TemporaryDirectory(prefix="dptopk-demo-") as folder:
        from dptopk.service.demo import create_tokens, demo_catalog

        demonstration = demo_catalog(Path(folder))
        _print_tokens(host, port, create_tokens(demonstration))
        _run(demonstration, host, port, workers)


def _prepare_address(host: str, port: int) -> None:
    """Print a warning about an address that others can reach, and refuse one that is taken.

    Args:
        host: the address to listen at.
        port: the port; 0: any that is free.

    Raises:
        InvalidParameter: when the address cannot be listened at.
    """
    if host not in {"127.0.0.1", "::1", "localhost"}:
        typer.echo(
            f"warning: --host {host}: tokens and answers travel unencrypted: put TLS before it",
            err=True,
        )
    _refuse_taken_address(host, port)


def _exit_on_signal(number: int, _frame: object) -> None:
    """Exit with the code of a program that a signal has ended, 128 plus the signal's number.

    Raises:
        SystemExit: always.
    """
    raise SystemExit(128 + number)


def _apply_terms(catalog: Path, reason: str) -> None:
    """Change the ledger's terms to the catalog's, and print each change.

    Args:
        catalog: the catalog's file.
        reason: why the terms change; the ledger records it.

    Raises:
        InvalidParameter: without a reason, and for a catalog that cannot be read.
        LedgerError: when something differs that never changes.
    """
    from dptopk.service import catalog_changes

    for difference in catalog_changes.apply(load_catalog(catalog), reason):
        typer.echo(f"changed: {difference}")


def _refuse_unfit_catalog(catalog: Path) -> None:
    """Print all that is wrong with a catalog, its data and its ledger; nothing is written.

    Raises:
        typer.Exit: with code 1, if one of the problems is no mere warning.
    """
    from dptopk.service import check

    problems = check.check(catalog)
    for problem in problems:
        typer.echo(str(problem))
    if any(problem.refused for problem in problems):
        raise typer.Exit(1)


def _ask_workers_to_reload(catalog: Path) -> None:
    """Let the workers that run read the catalog again, at their next heartbeat.

    Raises:
        LedgerError: when the access database cannot be written.
    """
    from dptopk.service.tables import RELOAD, Tables

    tables = Tables(load_catalog(catalog).access)
    tables.change(tables.add_statement(Tables.settings, RELOAD, 1), durable=True)
    tables.close()
    typer.echo("The workers will read it within some seconds.")


def _run(catalog: Catalog, host: str, port: int, workers: int) -> None:
    """Serve a catalog until the process is asked to end.

    Args:
        catalog: what is served.
        host: the address to listen at.
        port: the port; 0: any that is free.
        workers: the number of processes.

    Raises:
        DptopkError: when the catalog is refused, before any worker begins.
    """
    import uvicorn

    from dptopk.service.app import REFUSED, create_app
    from dptopk.service.connections import SETTINGS, uvicorn_config
    from dptopk.service.worker import refuse_unfit

    if workers == 1:
        uvicorn.Server(uvicorn_config(create_app(catalog), host, port)).run()
        return
    refuse_unfit(catalog)
    os.environ["DPTOPK_CATALOG"] = str(catalog.path)
    factory = "dptopk.service.app:from_environment"
    with tempfile.TemporaryDirectory(prefix="dptopk-workers-") as folder:
        reason_file = Path(folder) / "refused"
        os.environ[REFUSED] = str(reason_file)
        uvicorn.run(factory, factory=True, workers=workers, host=host, port=port, **SETTINGS)
        if reason_file.exists():
            reason = reason_file.read_text(encoding="utf-8")
            raise LedgerError(f"a worker did not begin: {reason}")


def _refuse_taken_address(host: str, port: int) -> None:
    """Refuse an address that cannot be listened at, before anything is promised about it.

    Args:
        host: the address to listen at.
        port: the port; 0: any that is free.

    Raises:
        InvalidParameter: naming the options and the reason.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise InvalidParameter(f"--host {host} --port {port}: {error.strerror}") from None


def _print_tokens(host: str, port: int, tokens: dict[str, str]) -> None:
    """Print the address of the demo and its tokens.

    Args:
        host: the address that it listens at.
        port: the port.
        tokens: the name of each analyst, and the token.
    """
    typer.echo(f"Serving at http://{host}:{port}/  (stop with Ctrl-C; nothing is kept)")
    for analyst, token in tokens.items():
        typer.echo(f"token of {analyst}: {token}")
