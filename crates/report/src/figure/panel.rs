//! What stands in a panel.
use super::axis::Axis;

/// One of the panels of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Panel {
    /// Values against values.
    Plot(Plot),
    /// Values of named things.
    Bars(Bars),
    /// A table of shades.
    Heat(Heat),
}

/// Curves, points and histograms over two axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// Written above the panel; may be empty.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is drawn, the first at the bottom.
    pub series: Vec<Series>,
}

/// One curve, cloud of points or histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// For the legend; series of the same name have the same colour, throughout the figure.
    pub name: String,
    /// Where it goes. One without points is not named, but the others have the colours that they have beside it.
    pub points: Vec<(f64, f64)>,
    /// For each point how far it scatters upwards and downwards: a band around a line, bars through points.
    pub spread: Option<Vec<f64>>,
    /// How it is drawn.
    pub mark: Mark,
    /// Written beside the points, in their order; may be empty.
    pub labels: Vec<String>,
    /// The method whose colour it has, by its name in settings, several of a method in shades of it; without one, the next of the palette that is free.
    pub method: Option<String>,
    /// The number by which it is put in order among several of its method: where all have one, their shades go from light to deep in it.
    pub order: Option<f64>,
    /// Whether its line is dashed.
    pub dashed: bool,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Mark {
    /// Points joined by a line.
    #[default]
    Line,
    /// A dot for each point.
    Points,
    /// Dots joined by a line.
    LineAndPoints,
    /// A bar for each point, from zero, with the point's `x` in its middle.
    Bars {
        /// In units of the axis.
        width: f64,
    },
}

/// Bars to the right, one group for each category.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// Written above the panel; may be empty.
    pub title: String,
    /// What is measured.
    pub value: Axis,
    /// The names of the groups, from top to bottom.
    pub categories: Vec<String>,
    /// In each group one bar, or one piece of the bar.
    pub series: Vec<BarSeries>,
    /// Whether the values of a group are put end to end.
    pub stacked: bool,
}

/// One value for each category.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarSeries {
    /// For the legend.
    pub name: String,
    /// In the order of the categories.
    pub values: Vec<f64>,
    /// For each value how far it scatters; only drawn where bars are not stacked.
    pub spread: Option<Vec<f64>>,
    /// Which colour of the palette; without it, the next that is free.
    pub colour: Option<usize>,
}

/// A table whose cells are the darker the more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heat {
    /// Written above the panel; may be empty.
    pub title: String,
    /// What the columns are.
    pub x: String,
    /// What the rows are.
    pub y: String,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The names of the rows, from top to bottom.
    pub rows: Vec<String>,
    /// A list of cells for each row.
    pub cells: Vec<Vec<HeatCell>>,
}

/// A cell of a [`Heat`] map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeatCell {
    /// From 0 to 1.
    pub shade: f64,
    /// Written in it if there is room.
    pub text: String,
}

impl Series {
    /// A line.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, ..Self::default() }
    }

    /// A cloud of points.
    pub fn points(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { mark: Mark::Points, ..Self::line(name, points) }
    }

    /// A histogram.
    pub fn bars(name: impl Into<String>, width: f64, points: Vec<(f64, f64)>) -> Self {
        Self { mark: Mark::Bars { width }, ..Self::line(name, points) }
    }

    /// With a dot at each of its points.
    pub fn dotted(self) -> Self {
        Self { mark: Mark::LineAndPoints, ..self }
    }

    /// With a dashed line.
    pub fn dashed(self) -> Self {
        Self { dashed: true, ..self }
    }

    /// With how far each point scatters.
    pub fn with_spread(self, spread: Vec<f64>) -> Self {
        Self { spread: Some(spread), ..self }
    }

    /// With words beside the points.
    pub fn with_labels(self, labels: Vec<String>) -> Self {
        Self { labels, ..self }
    }

    /// With the colour that a method has everywhere.
    pub fn of_method(self, method: impl Into<String>) -> Self {
        Self { method: Some(method.into()), ..self }
    }

    /// With the number by which it is put in order among those of its method, if there is one.
    pub fn in_order(self, order: Option<f64>) -> Self {
        Self { order, ..self }
    }

    /// How far a point scatters.
    pub(super) fn spread_at(&self, index: usize) -> f64 {
        spread_at(self.spread.as_deref(), index)
    }
}

impl BarSeries {
    /// Values without spread.
    pub fn new(name: impl Into<String>, values: Vec<f64>) -> Self {
        Self { name: name.into(), values, ..Self::default() }
    }

    /// How far a value scatters.
    pub(super) fn spread_at(&self, index: usize) -> f64 {
        spread_at(self.spread.as_deref(), index)
    }
}

fn spread_at(spread: Option<&[f64]>, index: usize) -> f64 {
    spread.and_then(|spread| spread.get(index)).copied().filter(|spread| spread.is_finite()).unwrap_or(0.0)
}

impl Panel {
    pub(super) fn title(&self) -> &str {
        match self {
            Self::Plot(plot) => &plot.title,
            Self::Bars(bars) => &bars.title,
            Self::Heat(heat) => &heat.title,
        }
    }
}

impl From<Plot> for Panel {
    fn from(plot: Plot) -> Self {
        Self::Plot(plot)
    }
}

impl From<Bars> for Panel {
    fn from(bars: Bars) -> Self {
        Self::Bars(bars)
    }
}

impl From<Heat> for Panel {
    fn from(heat: Heat) -> Self {
        Self::Heat(heat)
    }
}
