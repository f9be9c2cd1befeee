"""Renders a dashboard as Grafana's JSON model."""

from string import ascii_uppercase
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from panels import Column, Dashboard, Graph, Levels, Panel, Query, Stat, Table, Variable

TAG = "grpo"
_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_WINDOWS = ("30s", "1m", "5m", "15m", "1h", "6h")
_JOB_LINK = (
    "/d/grpo-job?var-datasource=${datasource}"
    "&var-namespace=${__data.fields.namespace}&var-grpojob=${__data.fields.grpojob}"
)


def render(view: Dashboard) -> str:
    """The JSON of a dashboard; the output is deterministic."""
    builder = (
        dashboard.Dashboard(view.title)
        .uid(view.uid)
        .description(view.description)
        .tags([TAG])
        .time(view.time, "now")
        .refresh("30s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(_links())
    )
    builder.with_variable(
        dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    )
    for variable in view.variables:
        builder.with_variable(_variable(variable))
    builder.with_variable(_window(view.window))
    number = 0
    for row in view.rows:
        number += 1
        builder.with_row(dashboard.Row(row.title).id(number))
        for panel in row.panels:
            number += 1
            builder.with_panel(_panel(panel).id(number))
    return JSONEncoder(sort_keys=True, indent=1).encode(builder.build()) + "\n"


def _links() -> dashboard.DashboardLink:
    """Links to the other dashboards."""
    return (
        dashboard.DashboardLink("GRPO")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .keep_time(True)
        .include_vars(True)
    )


def _variable(variable: Variable) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(variable.name)
        .label(variable.label)
        .datasource(_SOURCE)
        .query(f"label_values({variable.series}, {variable.name})")
        # Includes jobs that ended within the time range.
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )


def _window(default: str) -> dashboard.CustomVariable:
    options = [
        models.VariableOption(selected=window == default, text=window, value=window)
        for window in _WINDOWS
    ]
    return (
        dashboard.CustomVariable("window")
        .label("Averaged over")
        .description("Choose more than one step and more than four scrape intervals")
        .values(",".join(_WINDOWS))
        .options(options)
        .current(models.VariableOption(selected=True, text=default, value=default))
    )


def _panel(panel: Graph | Stat | Table) -> Any:
    match panel:
        case Graph():
            return _graph(panel)
        case Stat():
            return _stat(panel)
        case Table():
            return _table(panel)


def _graph(panel: Graph) -> timeseries.Panel:
    built = (
        timeseries.Panel()
        .line_width(1 if panel.stacked else 2)
        .fill_opacity(40 if panel.stacked else 0)
        .show_points(common_models.VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
    )
    if panel.stacked:
        built.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
    if panel.maximum is not None:
        built.min(0).max(panel.maximum)
    if panel.levels.above:
        built.thresholds_style(
            common.GraphThresholdsStyleConfig().mode(common_models.GraphThresholdsStyleMode.DASHED)
        )
    _fill(built, panel)
    return built


def _stat(panel: Stat) -> stat.Panel:
    built = (
        stat.Panel()
        .graph_mode(
            common_models.BigValueGraphMode.AREA
            if len(panel.queries) == 1
            else common_models.BigValueGraphMode.NONE
        )
        .color_mode(common_models.BigValueColorMode.VALUE)
        .no_value(panel.nothing)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )
    _fill(built, panel)
    return built


def _fill(built: timeseries.Panel | stat.Panel, panel: Panel) -> None:
    """Set what all panels with queries have in common."""
    built.title(panel.title).description(panel.description).datasource(_SOURCE)
    built.unit(str(panel.unit)).span(panel.width).height(panel.height)
    built.thresholds(_thresholds(panel.levels))
    if panel.decimals is not None:
        built.decimals(panel.decimals)
    for letter, query in zip(ascii_uppercase, panel.queries, strict=False):
        built.with_target(_target(letter, query))


def _target(letter: str, query: Query) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery()
        .ref_id(letter)
        .datasource(_SOURCE)
        .expr(query.expr)
        .legend_format(query.legend)
        .range()
    )


def _thresholds(levels: Levels) -> dashboard.ThresholdsConfig:
    steps = [models.Threshold(value=None, color=str(levels.base))]
    steps += [models.Threshold(value=value, color=str(color)) for value, color in levels.above]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _table(panel: Table) -> table.Panel:
    built = (
        table.Panel()
        .title(panel.title)
        .description(panel.description)
        .datasource(_SOURCE)
        .span(24)
        .height(panel.height)
        .no_value("no jobs")
    )
    renamed, columns = {}, zip(ascii_uppercase, panel.columns, strict=False)
    for letter, column in columns:
        built.with_target(
            _target(letter, Query(column.expr, "")).instant().format(PromQueryFormat.TABLE)
        )
        renamed[f"Value #{letter}"] = column.title
        built.override_by_name(column.title, _column(column))
    link = {"title": "Open the job", "url": _JOB_LINK}
    built.override_by_name("grpojob", [models.DynamicConfigValue("links", [link])])
    built.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    order = {"namespace": 0, "grpojob": 1}
    built.with_transformation(
        models.DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": {"Time": True},
                "indexByName": order | {value: 2 + i for i, value in enumerate(renamed)},
                "renameByName": renamed,
            },
        )
    )
    return built


def _column(column: Column) -> list[models.DynamicConfigValue]:
    found = [
        models.DynamicConfigValue("unit", str(column.unit)),
        models.DynamicConfigValue("decimals", column.decimals),
    ]
    if column.levels is not None:
        found.append(models.DynamicConfigValue("thresholds", _thresholds(column.levels).build()))
        found.append(models.DynamicConfigValue("custom.cellOptions", {"type": "color-text"}))
    return found
