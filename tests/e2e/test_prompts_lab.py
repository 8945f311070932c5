"""Tests of a login from JupyterLab: prompts of hosts are dialogs, and the login serves every notebook."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from ssh_hosts import Site
from ssh_hosts.watch import Watch

pytestmark = [pytest.mark.browser, pytest.mark.slurm, pytest.mark.root, pytest.mark.slow]


@pytest.fixture(scope="module")
def site(new_ssh_site: Callable[..., Site]) -> Site:
    """Provide a site with a password and a one-time code, and with a gateway unknown to this laptop."""
    return new_ssh_site(way_in="password+code", nodes=1)


@pytest.fixture(scope="module")
def lab(start_jupyter: Callable[..., Any], lab_files: dict[str, str], site: Site) -> Any:
    """Provide JupyterLab on a laptop with a profile of that site."""
    known = site.known_hosts.read_text().splitlines(keepends=True)
    (site.directory / "laptop_known").write_text("".join(line for line in known if site.gateway.address not in line))
    config = site.ssh_config.read_text().replace(str(site.known_hosts), str(site.directory / "laptop_known"))
    (site.directory / "laptop_config").write_text(config.replace("Checking yes", "Checking ask"))
    profile = f'[login]\nhost = "login"\nssh_config = "{site.directory}/laptop_config"\n'
    files = {**lab_files, ".config/jupyter_slurm/sites/far.toml": profile}
    files[".config/jupyter_slurm/sites/second.toml"] = f'{profile}carrier = "openssh"\n'
    return start_jupyter("lab", "--config=lab.py", files=files)


def dialog(page: Page) -> Locator:
    return page.locator(".jp-Slurm-promptDialog")


def connection(page: Page) -> Locator:
    return page.locator(".jp-Slurm-clusters li", has_text="far")


def answer(page: Page, question: str, text: str) -> None:
    """Type into the only field of the dialog, which has the focus, and press Enter."""
    expect(dialog(page)).to_contain_text(question)
    expect(dialog(page).locator("input")).to_be_focused()
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def test_a_log_in_is_made_in_the_browser(
    page: Page, site: Site, screenshot: Callable[[Page, str], None], axe: Callable[[Page, str], None]
) -> None:
    status = page.locator(".jp-Slurm-status button")
    status.click()
    expect(connection(page)).to_contain_text("not connected")
    screenshot(page, "clusters")
    axe(page, ".jp-Slurm-panel")

    connection(page).get_by_role("button", name="Connect").click()
    expect(dialog(page).locator("p")).to_have_text(re.compile(r"^jupyter_slurm asks, about gateway \(.*\):$"))
    expect(dialog(page)).to_contain_text(re.compile(r"key fingerprint is SHA256:\S{43}"))
    expect(dialog(page).get_by_role("button", name="Cancel")).to_be_focused()
    screenshot(page, "prompt-host-key")
    axe(page, ".jp-Slurm-promptDialog")
    page.keyboard.press("Enter")
    expect(connection(page)).to_contain_text("not connected")
    expect(page.locator(".jp-Slurm-notice")).to_contain_text("gateway")
    screenshot(page, "clusters-declined")

    page.keyboard.press("ControlOrMeta+Shift+C")
    page.locator(".lm-CommandPalette-input").fill("slurm connect")
    page.locator(".lm-CommandPalette-item", has_text="Connect to far").click()
    dialog(page).get_by_role("button", name="Accept").click()

    expect(dialog(page).locator("p")).to_have_text(re.compile(r"^gateway \(.*\) asks:$"))
    expect(dialog(page)).to_contain_text("Password:")
    expect(status).to_have_text("Slurm: login to far required")
    screenshot(page, "prompt-password")
    axe(page, ".jp-Slurm-promptDialog")
    page.reload()
    expect(dialog(page).locator("input")).to_have_attribute("type", "password")
    answer(page, "Password:", site.password)

    expect(dialog(page)).to_contain_text("Verification code:")
    other = page.context.new_page()
    other.goto(page.url)
    answer(other, "Verification code:", site.codes.next())
    expect(dialog(page)).to_have_count(0)
    expect(dialog(other)).to_have_count(0)
    other.close()
    status.click()
    expect(connection(page)).to_contain_text(re.compile("connected since .*, by gateway → login"))
    screenshot(page, "clusters-connected")


@pytest.fixture
def cell(page: Page) -> Callable[[str], Locator]:
    """Return ``cell(code)``, which runs a cell in a new notebook and returns its output area."""
    page.evaluate("window.jupyterapp.commands.execute('notebook:create-new', {kernelName: 'python3'}).then(() => null)")
    # Cells run before the start of a kernel are ignored.
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle")

    def run(code: str) -> Locator:
        cells = page.locator(".jp-Notebook .jp-CodeCell")
        this = cells.nth(cells.count() - 1)
        this.locator(".cm-content").click()
        page.keyboard.insert_text(code)
        page.keyboard.press("Shift+Enter")
        return this.locator(".jp-OutputArea")

    return run


def test_a_notebook_uses_it_without_asking_again(
    page: Page, site: Site, cell: Callable[[str], Locator], screenshot: Callable[[Page, str], None]
) -> None:
    connected = site.codes.used
    assert connected, "the test before this one has logged in"
    expect(cell("%load_ext jupyter_slurm\n%slurm use far")).to_contain_text("This notebook now uses far")
    expect(cell("%%sbatch wait\nimport os\nprint('on', os.uname().nodename)")).to_contain_text("on node1")
    assert site.codes.used == connected
    status = page.locator(".jp-Slurm-status button")
    status.click()
    expect(connection(page)).to_contain_text("1 notebook uses it: Untitled.ipynb")
    expect(page.locator(".jp-Slurm-body [role=row]")).to_have_count(1)
    expect(status).not_to_contain_text("running")  # the output of a job is there before its end

    site.gateway.drop()
    try:
        expect(status).to_have_text(re.compile(r"^Slurm: connection to far lost \(checked [0-9:]{5}\)$"))
        expect(connection(page)).to_contain_text("connection lost since")
        screenshot(page, "clusters-lost")
    finally:
        site.gateway.restore()
    answer(page, "Password:", site.password)
    answer(page, "Verification code:", site.codes.next())
    expect(status).to_have_text("Slurm: connection to far restored")
    expect(page.locator(".jp-Slurm-body [role=row]")).to_have_count(1)

    end = connection(page).get_by_role("button", name="Disconnect")
    end.click()
    expect(page.locator(".jp-Dialog-body")).to_contain_text("1 notebook uses it: Untitled.ipynb.")
    screenshot(page, "clusters-disconnect")
    page.keyboard.press("Enter")
    expect(connection(page)).to_contain_text("connected since")
    end.click()
    page.locator(".jp-Dialog").get_by_role("button", name="Disconnect").click()
    expect(connection(page)).to_contain_text("not connected")
    expect(page.locator(".jp-Slurm-body [role=row]")).to_have_count(0)


def test_a_cell_that_asks_goes_on_when_the_dialog_is_answered(
    page: Page, site: Site, lab: Any, cell: Callable[[str], Locator], screenshot: Callable[[Page, str], None]
) -> None:
    output = cell("%load_ext jupyter_slurm\n%slurm use far")
    expect(dialog(page)).to_contain_text("Password:")
    expect(output.locator("input")).to_be_visible()
    screenshot(page, "prompt-and-cell")
    answer(page, "Password:", site.password)
    answer(page, "Verification code:", site.codes.next())
    expect(output).to_contain_text("This notebook now uses far")
    screenshot(page, "prompt-answered")
    expect(output.locator("input")).to_have_count(0)
    expect(cell("print(6 * 7)")).to_contain_text(
        "42"
    )  # JupyterLab runs no cell while it believes that another one waits for input
    expect(page.get_by_text(site.password)).to_have_count(0)
    kept = [file for file in lab.home.rglob("*") if file.is_file() and site.password.encode() in file.read_bytes()]
    assert kept == []


def test_openssh_asks_in_the_browser_and_under_the_cell(
    page: Page, site: Site, lab: Any, cell: Callable[[str], Locator], watch: Watch
) -> None:
    """The same hosts by the local ssh: both prompts are answered in dialogs, and leave nothing under the cell.

    The answers are in no command line and no environment: of the browser, JupyterLab, the agent, ssh, or a host.
    """
    output = cell("%load_ext jupyter_slurm\n%slurm use second")
    expect(dialog(page)).to_contain_text(re.compile("Password|fingerprint"))
    if "fingerprint" in dialog(page).inner_text():  # if no test before has connected to the gateway
        dialog(page).get_by_role("button", name="Accept").click()
        expect(dialog(page)).to_contain_text("Password")
    field = output.locator("input")
    expect(field).to_be_visible()
    answer(page, "Password", site.password)
    code = site.codes.next()
    answer(page, "Verification code", code)
    expect(output).to_contain_text("This notebook now uses second")
    expect(field).to_have_count(0)
    expect(cell("%%sbatch wait\nimport os\nprint('on', os.uname().nodename)")).to_contain_text("on node1")
    expect(cell("import sys\n!{sys.executable} -m jupyter_slurm.cli.main disconnect second --yes")).to_contain_text(
        "Disconnected from second"
    )
    watch.stop()
    assert watch.where("jupyter_slurm.cli.main\0disconnect", "cmdline"), "it looked"
    assert not watch.where(site.password)
    assert not watch.where(code, "cmdline")  # six digits are too common to search in an environment
    assert not watch.where(lab.token, "cmdline")  # the environment contains it: JupyterLab was started with it
