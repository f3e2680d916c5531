"""`shoal version`: of this client, and of the server if one answers."""

from __future__ import annotations

from shoal import __version__
from shoal.cli.options import command, json_option
from shoal.cli.session import open_session


@command("version", "shoal version", "shoal version --json")
@json_option("{client, server}, the server as Meta or null")
def version(as_json: bool) -> None:
    """Show the version of this client, and of the server if one answers. Ends with 0 either way."""
    from shoal.base.errors import ShoalError

    session = open_session(as_json)
    settings = session.settings
    try:
        meta = settings.api(patience_s=0).meta()
    except ShoalError:
        session.show(
            {"client": __version__, "server": None}, lambda _: [f"client  {__version__}", f"server  none answers at {settings.url}"]
        )
        return
    session.show(
        {"client": __version__, "server": meta},
        lambda _: [f"client  {__version__}", f"server  {meta.version} at {settings.url}, store {meta.store}, {meta.nodes} nodes"],
    )
