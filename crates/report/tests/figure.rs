//! Figures drawn from plain data, whatever the data.
use fedeq_report::figure::{Axis, BarSeries, Bars, Figure, Heat, HeatCell, Panel, Plot, Series};

const NAN: f64 = f64::NAN;

fn curve(count: u32, rate: f64) -> Vec<(f64, f64)> {
    (0..count).map(|round| (f64::from(round), 1.0 - 0.9 / (1.0 + rate * f64::from(round)))).collect()
}

fn plot(series: Vec<Series>) -> Plot {
    Plot { title: "A panel".into(), x: Axis::new("rounds"), y: Axis::percent("accuracy"), series }
}

fn heat(rows: usize) -> Heat {
    let names: Vec<String> = (0..rows).map(|row| row.to_string()).collect();
    let cell = |row: usize, column: usize| {
        let shade = if row == column {
            0.9
        } else if row + 1 == column {
            0.1
        } else {
            0.0
        };
        HeatCell { shade, text: if shade > 0.0 { format!("{}", (shade * 40.0) as u32) } else { String::new() } }
    };
    let cells = (0..rows).map(|row| (0..rows).map(|column| cell(row, column)).collect()).collect();
    let (x, y) = ("answer".into(), "label".into());
    Heat { title: "Confusion".into(), x, y, columns: names.clone(), rows: names, cells }
}

fn bars(stacked: bool) -> Bars {
    let mut first = BarSeries::new("solve", vec![1.0, 2.5, NAN]);
    first.spread = Some(vec![0.2, 0.1, 0.0]);
    let series = vec![first, BarSeries::new("backward", vec![0.5, 1.0, 2.0])];
    let categories = ["fedeq-digits-0", "fedavg-digits-0", "a run with a very long name indeed"].map(String::from).to_vec();
    Bars { title: "Time".into(), value: Axis::new("seconds"), categories, series, stacked }
}

/// A figure with everything in it.
fn rich() -> Figure {
    let spread = (0..20).map(|index| 0.01 + 0.002 * f64::from(index)).collect();
    let lines = vec![
        Series::line("FeDEQ", curve(20, 1.5)).with_spread(spread),
        Series::line("FedRep", curve(20, 0.7)).dotted(),
        Series::line("FedAvg <b> & co", curve(20, 0.3)).dashed(),
    ];
    let points: Vec<(f64, f64)> = [(3e4, 0.7), (2.7e5, 0.8), (2.1e7, 0.9)].to_vec();
    let labels = ["ResNet-14", "ResNet-20", "ResNet-34"].map(String::from).to_vec();
    let sizes = Series::points("FedRep", points).with_labels(labels).with_spread(vec![0.05, 0.02, 0.01]);
    let sizes = Plot { x: Axis::log("parameters shared"), ..plot(vec![sizes]) };
    let histogram =
        plot(vec![Series::bars("clients", 0.1, (0..10).map(|bin| (0.05 + 0.1 * f64::from(bin), f64::from(bin))).collect())]);
    let histogram = Plot { x: Axis::percent("accuracy"), y: Axis::new("clients"), ..histogram };
    let mut long = heat(10);
    long.columns = long.columns.iter().map(|name| format!("a class with a long name, {name}")).collect();
    let panels = vec![
        long.into(),
        plot(lines).into(),
        sizes.into(),
        histogram.into(),
        bars(true).into(),
        bars(false).into(),
        heat(10).into(),
    ];
    Figure::new("rich", "Everything that can be drawn", panels)
        .with_note("A note that says where the numbers come from, and it may be long.")
}

/// Every kind of panel over values that are hard to draw.
fn awkward() -> Vec<Figure> {
    let values = [
        vec![],
        vec![(0.0, NAN), (NAN, 0.0)],
        vec![(5.0, 0.25)],
        vec![(0.0, 0.5), (1.0, 0.5), (2.0, 0.5)],
        vec![(0.0, 0.0), (1.0, -1.0)],
        vec![(0.0, f64::INFINITY), (1.0, f64::MAX), (2.0, 1e-310), (3.0, f64::NEG_INFINITY)],
    ];
    let axes =
        [Axis::new("x"), Axis::percent("x"), Axis::log("x"), Axis::new("x").between(1.0, 1.0), Axis::new("x").between(NAN, 0.0)];
    let mut figures = Vec::new();
    for points in values {
        for axis in &axes {
            let spread = vec![1.0, NAN, 0.0];
            let line = Series::line("a", points.clone()).with_spread(spread.clone());
            let bars = Series::bars("b", 0.1, points.clone());
            let dots = Series::points("c", points.clone()).with_spread(spread);
            let plot = Plot { title: String::new(), x: axis.clone(), y: axis.clone(), series: vec![line, bars, dots] };
            figures.push(Figure::new("awkward", "", vec![plot.into()]));
        }
    }
    let empty: [Panel; 3] = [Plot::default().into(), Bars::default().into(), Heat::default().into()];
    figures.extend(empty.map(|panel| Figure::new("empty", "", vec![panel])));
    figures.push(Figure::default());
    figures
}

#[test]
fn the_same_figure_gives_the_same_bytes() {
    let figure = rich();
    assert_eq!(figure.svg().unwrap(), figure.svg().unwrap());
    assert_eq!(figure.png().unwrap(), figure.png().unwrap());
}

#[test]
fn whatever_the_values_are_there_is_a_picture_without_nonsense_in_it() {
    for figure in awkward() {
        let svg = figure.svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{figure:?}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{figure:?}\n{svg}");
        assert!(figure.png().unwrap().starts_with(b"\x89PNG"));
    }
}

#[test]
fn a_gap_is_no_line() {
    let whole = Series::line("a", vec![(0.0, 0.1), (1.0, 0.2), (2.0, 0.3), (3.0, 0.4)]);
    let broken = Series::line("a", vec![(0.0, 0.1), (1.0, 0.2), (1.5, NAN), (2.0, 0.3), (3.0, 0.4)]);
    let lines =
        |series: Series| Figure::new("a", "", vec![plot(vec![series]).into()]).svg().unwrap().matches("<polyline").count();
    assert_eq!(lines(broken), lines(whole) + 1);
}

#[test]
fn names_are_written_and_never_become_tags() {
    let figure = rich();
    let text = figure.svg().unwrap();
    assert!(text.contains("FedAvg &lt;b&gt; &amp; co") && !text.contains("<b>"));
}

#[test]
fn files_are_written_as_svg_and_png() {
    let folder = tempfile::tempdir().unwrap();
    let [svg, png] = rich().save(&folder.path().join("figures")).unwrap();
    assert!(svg.ends_with("rich.svg") && std::fs::read_to_string(svg).unwrap().starts_with("<svg"));
    assert!(image::load_from_memory(&std::fs::read(png).unwrap()).is_ok());
}
