"""Tests of a Jupyter on a GPU node, from the click on its card to a cell that ran in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

SAVED = """async () => {
    const { values } = await window.jupyterapp.serviceManager.workspaces.list();
    return values.some(({ data }) => Object.entries(data).some(([name, page]) => name.startsWith('jupyter-slurm-launch:')
        && page.data?.session && JSON.stringify(data['layout-restorer:data']?.main ?? '').includes(name)));
}"""
FOCUSED = "document.activeElement.closest('[data-field]')?.dataset.field ?? document.activeElement.textContent"


@pytest.fixture(scope="module")
def lab_files(lab_files: dict[str, str]) -> dict[str, str]:
    """Provide the site's settings of sessions, and what a user has on the cluster."""
    places = {"venvs/torch/pyvenv.cfg": "", "projects/data sets/train.csv": ""}
    places[".jupyter/lab/user-settings/jupyter-slurm/sessions.jupyterlab-settings"] = '{"memory": "8G", "cpus": ""}'
    return {**lab_files, **places, ".jupyter/jupyter_slurm_config.py": 'c.Settings.launch = {"cpus": 6}\n'}


def _run_a_cell(inner: Page, code: str) -> Locator:
    inner.locator(".jp-LauncherCard[data-category=Notebook]").first.click()
    expect(inner.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible(timeout=60_000)
    cell = inner.locator(".jp-Notebook .jp-Cell .cm-content").first
    cell.fill(code)
    cell.press("Shift+Enter")
    return inner.locator(".jp-OutputArea-output").first


def _places(form: Locator) -> list[dict[str, float] | None]:
    return [field.bounding_box() for field in form.locator("[data-field]").all()]


def _see_problems_at_their_fields(form: Locator) -> None:
    """Before anything is submitted, in the words of the form, and nothing of the command line."""
    for label, value, said in (
        ("Time limit", "4 hous", "Enter a time such as 4h, 90 min or 1d 12h."),
        ("CPUs", "99", "A node of this partition has at most 16 CPUs."),
        ("Memory", "9T", "A job can have at most 64G on a node of this partition."),
        ("Folder", "/proc/no/such/folder", "This folder does not exist on the cluster."),
        ("Environment or image", "/no/such/venv", "This environment does not exist on the cluster."),
        ("Environment or image", "nowhere", "There is no environment with this name."),
    ):
        field = form.get_by_label(label)
        before = field.input_value()
        field.fill(value)
        expect(form.locator("[data-field] [role=alert]")).to_have_text(said)
        described = (field.get_attribute("aria-describedby") or "").replace(":", "\\:")
        expect(form.locator(f"#{described}")).to_have_text(said)
        field.fill(before)
        expect(form.get_by_role("alert")).to_have_count(0)  # also none of a request that the network lost
    form.get_by_label("Time limit").fill("90")
    expect(form.locator("[data-field=time]")).to_contain_text("= 90 minutes")
    form.get_by_label("Time limit").fill("4 hours")
    expect(form.locator("[data-field=time]")).to_contain_text("= 4 h")


def _see_one_column(page: Page, form: Locator) -> None:
    """Fields that have no text below them have no empty line there, where no other field stands beside them."""
    lines = "[data-field=account] > div:last-child, [data-field=qos] > div:last-child"
    heights = f"form => [...form.querySelectorAll('{lines}')].map(each => each.offsetHeight)"
    size, wide = page.viewport_size, form.evaluate(heights)
    assert size
    page.set_viewport_size({"width": 480, "height": 900})
    narrow = form.evaluate(heights)
    page.set_viewport_size(size)
    assert min(wide) > 14 > 8 > max(narrow)


def _choose_places(page: Page, form: Locator, screenshot: Callable[..., None], axe: Callable[..., None]) -> None:
    """An environment of the cluster, and a folder below another one, by the keyboard alone."""
    choices = form.get_by_role("listbox", name="Suggestions")
    environment, folder = form.get_by_label("Environment or image"), form.get_by_label("Folder")

    def open_environments() -> None:
        environment.press("Escape")
        environment.press("ArrowDown")
        expect(choices.get_by_role("option", name="~/venvs/torch venv")).to_be_visible()

    axe(page, ".jp-Slurm-launch", open_environments)
    screenshot(page, "launch-environments", open_environments)
    environment.press_sequentially("torch")
    environment.press("ArrowDown")
    environment.press("Enter")
    expect(environment).to_have_value("~/venvs/torch")
    environment.fill("")
    folder.press_sequentially("~/proj")
    folder.press("ArrowDown")
    expect(choices.get_by_role("option", selected=True)).to_have_text("~/projects/")
    folder.press("Enter")
    inner = choices.get_by_role("option", name="~/projects/data sets/")
    expect(inner).to_be_visible()
    inner.click()
    expect(folder).to_have_value("~/projects/data sets/")
    expect(form.get_by_role("status").filter(has_text="No suggestions")).to_be_visible()
    folder.press("Escape")
    expect(form.get_by_role("alert")).to_have_count(0)
    folder.fill("")
    folder.press("Escape")


def _choose_an_app(
    page: Page, form: Locator, screenshot: Callable[[Page, str], None], axe: Callable[[Page, str], None]
) -> None:
    """The fields of an app come with it; what it lacks is shown at its field, and what the agent knows, too."""
    app, logs = form.get_by_label("App"), form.get_by_label("Log folder")
    expect(app.locator("option")).to_have_text(["Jupyter", "code-server", "marimo", "MLflow", "RStudio", "TensorBoard"])
    app.select_option("tensorboard")
    expect(form.get_by_role("alert")).to_have_text("Enter the folder with the logs, for example runs.")
    expect(form.get_by_role("button", name="Add as kernel…")).to_have_attribute("aria-disabled", "true")
    screenshot(page, "launch-app")
    axe(page, ".jp-Slurm-launch")
    logs.fill("runs")
    expect(form.get_by_role("alert")).to_have_count(0)
    app.select_option(label="Jupyter")
    expect(logs).to_have_count(0)


def _launch_an_app(page: Page) -> None:
    """The folder need not exist yet. The node has no TensorBoard: its session ends with what to install."""
    form = page.locator(".jp-MainAreaWidget:not(.lm-mod-hidden)").get_by_role("form")
    form.get_by_label("App").select_option("tensorboard")
    form.get_by_label("Log folder").fill("runs")
    form.get_by_role("button", name="Launch", exact=True).click()
    expect(form.get_by_role("alert")).to_have_text("This folder does not exist on the cluster.")
    form.get_by_role("button", name="Launch anyway").click()
    session = page.locator(".jp-MainAreaWidget:not(.lm-mod-hidden) .jp-Slurm-session")
    expect(session.get_by_role("heading")).to_have_text("tensorboard-1")
    expect(session).to_have_attribute("data-session", "ended", timeout=90_000)
    expect(session).to_contain_text("has no tensorboard, which app=tensorboard needs.")


def _tab_to(page: Page, field: str, key: str = "Tab") -> None:
    for _ in range(20):
        if page.evaluate(FOCUSED) == field:
            return
        page.keyboard.press(key)
    pytest.fail(f"{key} does not come to {field}")


@pytest.mark.timeout(300)
def test_from_the_card_in_the_launcher_to_a_cell_on_the_node(
    page: Page,
    lab: Any,
    screenshot: Callable[[Page, str], None],
    axe: Callable[[Page, str], None],
    wait_for: Callable[..., Any],
) -> None:
    # the result, a widget, cannot be serialized
    page.evaluate("window.jupyterapp.commands.execute('launcher:create').then(() => null)")
    card = page.locator(".jp-LauncherCard[data-category=Slurm]:visible", has_text="GPU notebook on arandu")
    card.scroll_into_view_if_needed()
    axe(page, ".jp-LauncherCard[data-category=Slurm]")
    card.click()
    form = page.get_by_role("form", name="GPU notebook on arandu")
    partition = form.get_by_label("Partition")
    expect(partition).to_be_focused()
    expect(partition).to_contain_text("arandu (8 of 8 a100 free, no time limit)")
    expect(form.get_by_label("Idle time")).to_have_value("24 h")  # from the setting
    expect(form.get_by_label("CPUs")).to_have_value("6")  # from the profile
    expect(form.get_by_label("Memory")).to_have_value("8G")  # from the settings of JupyterLab
    expect(form.get_by_label("Time limit")).to_have_value("4:00:00")  # the agent's own, also those of `launcher()`
    screenshot(page, "launch-form")
    axe(page, ".jp-Slurm-launch")

    _see_problems_at_their_fields(form)
    _see_one_column(page, form)
    _choose_places(page, form, screenshot, axe)
    _choose_an_app(page, form, screenshot, axe)
    partition.focus()

    # From this point to the session by the keyboard alone. Errors appear during typing, and sbatch's words at the
    # launch.
    before = _places(form)
    partition.press("a")  # a slow browser takes a whole word for two
    expect(partition).to_have_value("arandu")
    expect(form.get_by_label("GPU type")).to_be_enabled()
    assert _places(form) == before
    _tab_to(page, "gpus")
    page.keyboard.type("9")
    refusal = form.get_by_role("alert")
    expect(refusal).to_have_text("This partition has 8 GPUs in all.")
    page.keyboard.press("Enter")
    expect(form.get_by_role("button", name="Launch anyway")).to_be_visible()  # nothing was submitted
    expect(form.get_by_label("GPUs", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(refusal.last).to_have_text("Slurm refused the job: Requested node configuration is not available")
    screenshot(page, "launch-refused")
    axe(page, ".jp-Slurm-launch")
    # By the field, not the page: once, after the theme changes of the pictures, the page lost a typed digit.
    gpus = form.get_by_label("GPUs", exact=True)
    gpus.press("ControlOrMeta+A")
    gpus.press("1")
    expect(gpus).to_have_value("1")
    _tab_to(page, "gpuType")
    page.keyboard.type("a100")
    expect(form.get_by_label("GPU type")).to_have_value("a100")
    expect(refusal).to_have_count(0)
    _tab_to(page, "When would it start?")
    page.keyboard.press("Enter")
    expect(form.locator(".jp-Slurm-outlook")).to_contain_text("Earliest start")
    _tab_to(page, "name", "Shift+Tab")
    page.keyboard.type("training")
    page.keyboard.press("Enter")
    session = page.locator(".jp-Slurm-session")
    expect(session.get_by_role("heading")).to_have_text("training")
    expect(session).to_be_focused()
    expect(session).to_have_attribute("data-session", "ready", timeout=90_000)
    expect(session.locator("[data-reached=true]")).to_have_count(4)
    expect(session).to_contain_text("on dgx01 · 1 GPU · jupyterlab")
    expect(session.locator(".jp-Slurm-fact").last).to_have_css("display", "inline-block")  # no time breaks over a line
    expect(session.locator(".jp-Slurm-fact").last).to_have_text("stops after 24 h without use")
    found = re.search(r"job (\d+)", session.inner_text())
    assert found
    wait_for(lambda: page.evaluate(SAVED), "the page is saved")

    page.reload()
    expect(session).to_have_attribute("data-session", "ready")
    session.get_by_role("button", name="Log").click()
    expect(session.locator("pre")).to_contain_text("Jupyter Server")
    screenshot(page, "session-ready")
    axe(page, ".jp-Slurm-launch")
    with page.context.expect_page() as opened:
        session.get_by_role("link", name="Open session training in a new tab").press("Enter")
    inner, asked_for = opened.value, list[str]()
    inner.set_default_timeout(60_000)
    inner.on("request", lambda request: asked_for.append(request.url))
    printed = _run_a_cell(inner, "import os; print('job', os.environ['SLURM_JOB_ID'])")
    expect(printed).to_have_text(f"job {found[1]}", timeout=60_000)
    (file,) = lab.home.rglob("serving/token")
    token = file.read_text()
    assert token not in inner.content() + inner.evaluate("document.cookie") + str(inner.context.cookies())
    assert asked_for
    assert not [url for url in asked_for if token in url or not url.startswith((lab.url, "data:", "blob:"))]
    inner.close()

    with page.context.expect_page() as opened:
        session.get_by_role("button", name="Open a new notebook in session training").click()
    expect(opened.value.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible()  # without a question for a kernel
    assert re.search(r"/lab/tree/Untitled\d*\.ipynb", opened.value.url)
    opened.value.close()

    page.evaluate("window.jupyterapp.commands.execute('jupyter-slurm:open')")
    row = page.get_by_role("list", name="Sessions").get_by_role("listitem")
    expect(row).to_have_text(re.compile("trainingready · dgx01.*Open.*Stop"))
    expect(page.locator("#jupyter-slurm-panel .jp-Slurm-mark")).to_contain_text("session")  # 4.2 has a text in the icon
    _look_at_what_is_free(page, screenshot)
    axe(page, "#jupyter-slurm-panel")
    row.get_by_role("button", name="Show session training").click()
    stop = session.get_by_role("button", name="Stop session training")
    stop.click()
    expect(page.locator(".jp-Dialog-header")).to_have_text("Stop session training?")
    axe(page, ".jp-Dialog")
    page.keyboard.press("Enter")
    expect(page.locator(".jp-Dialog")).to_have_count(0)
    expect(session).to_have_attribute("data-session", "ready")
    stop.click()
    page.get_by_role("button", name="Stop the session").click()
    expect(session).to_have_attribute("data-session", "ended", timeout=60_000)
    expect(session).to_contain_text("stopped")
    session.get_by_role("button", name="Launch another").click()
    expect(form.get_by_label("GPU type")).to_have_value("a100")  # as in the last launch
    expect(form.get_by_label("Name", exact=True)).to_have_value("")
    refresh, free = form.get_by_role("button", name="Refresh"), form.get_by_label("Partition")
    # The session has ended a moment before its job, whose node is completing then.
    wait_for(lambda: refresh.click() or "arandu (8 of 8 a100 free" in free.inner_text(), "the GPUs are free")
    _keep_and_open_a_template(page, form, screenshot)
    _launch_an_app(page)


def _look_at_what_is_free(page: Page, screenshot: Callable[[Page, str], None]) -> None:
    """The session has one of eight GPUs; the button causes a new query to Slurm."""
    panel = page.locator("#jupyter-slurm-panel")
    panel.get_by_text("Free on arandu").click()
    free = panel.locator(".jp-Slurm-resources")
    free.get_by_role("button", name="Refresh").click()
    expect(free.locator("[data-gpu=a100]")).to_have_text("a1007 of 8 free")
    expect(free).to_contain_text(re.compile("You use: .*1 GPU \\(a100\\) in 1 job"))
    free.get_by_text("5 nodes").click()
    dgx = free.get_by_role("table", name="Nodes").get_by_role("row").filter(has_text="dgx01")
    expect(dgx).to_contain_text(re.compile("mixed.*1 of 8 a100"))
    screenshot(page, "panel-sessions")


def _keep_and_open_a_template(page: Page, form: Locator, screenshot: Callable[[Page, str], None]) -> None:
    form.get_by_label("Memory").fill("3G")
    for replaced in (False, True):
        form.get_by_role("button", name="Save as template…").click()
        page.locator(".jp-Dialog input").fill("mine")
        page.keyboard.press("Enter")
        if replaced:
            page.get_by_role("button", name="Replace").click()
        expect(page.get_by_text("Saved as mine.slurm-launch.json").last).to_be_visible()
    page.evaluate("window.jupyterapp.shell.currentWidget.close()")
    page.get_by_title("mine.slurm-launch.json").dblclick()
    opened = page.get_by_role("form", name="GPU notebook on arandu")
    expect(opened.get_by_label("Memory")).to_have_value("3G")
    expect(opened.get_by_label("GPU type")).to_have_value("a100")
    screenshot(page, "launch-template")


@pytest.mark.parametrize("is_key", [True, False], ids=["key", "command"])
def test_a_launch_right_after_a_reload_says_that_it_waits_for_the_clusters(page: Page, is_key: bool) -> None:
    held: list[Route] = []
    page.route("**/jupyter-slurm/api/v1/clusters?*", lambda route: held.append(route))
    page.reload()
    page.wait_for_function("window.jupyterapp?.commands?.hasCommand('jupyter-slurm:launch')", timeout=90_000)
    expect(page.locator(".jp-LauncherCard").first).to_be_visible(timeout=60_000)
    if is_key:
        page.locator("body").press("Control+Alt+g")
    else:
        page.evaluate("() => { void window.jupyterapp.commands.execute('jupyter-slurm:launch') }")
    notice = page.get_by_text("Loading the clusters…")
    expect(notice).to_be_visible(timeout=60_000)
    assert held, "the agent's answer is on its way"
    for request in held:
        request.continue_()
    page.unroute_all()
    expect(page.get_by_role("form", name="GPU notebook on arandu")).to_be_visible(timeout=60_000)
    expect(notice).to_have_count(0)
