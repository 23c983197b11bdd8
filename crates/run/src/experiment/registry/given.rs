//! Which values the presets give a setting: the experiments that they make of every method, network and data set, looked at.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use fedeq_core::Method;
use fedeq_data::partition::Partition;
use fedeq_data::source::Source;
use fedeq_models::ModelConfig;
use serde::Serialize;
use toml::{Table, Value};

use super::super::Experiment;
use super::{SettingInfo, value_at};
use crate::preset::{Preset, PresetValues};

/// A value that a setting has by default in some experiments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Given {
    /// The value; nothing where it is left open.
    pub value: Option<Value>,
    /// In which experiments.
    pub only_with: Vec<GivenWhere>,
}

/// Experiments with one of some values for each of some choices; what is not named may be anything.
pub type GivenWhere = BTreeMap<&'static str, Vec<&'static str>>;

/// What is chosen in an experiment: preset, method, model, data and partition.
type Point = BTreeMap<&'static str, &'static str>;

/// Experiments by the values of some choices, in their order.
type Places = BTreeSet<Vec<&'static str>>;

/// The choices that a section depends on, and what stands in it for all of them.
struct Section {
    name: &'static str,
    experiments: Vec<(Point, Table)>,
}

static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(sections);

/// What is chosen by who says nothing.
const USUAL: [(&str, &str); 4] = [("preset", "recommended"), ("data", "digits"), ("method", "fedeq"), ("model", "deq-resnet-xs")];

/// The value in the experiment that people get who say no more than the setting needs.
pub(super) fn reference(setting: &SettingInfo) -> Option<Value> {
    let points = points(setting);
    let nearness = |point: &Point| USUAL.iter().filter(|(choice, usual)| point.get(choice) == Some(usual)).count();
    let mut best: Option<&(&Point, Option<Value>)> = None;
    for candidate in &points {
        if best.is_none_or(|best| nearness(candidate.0) > nearness(best.0)) {
            best = Some(candidate);
        }
    }
    best.and_then(|(_, value)| value.clone())
}

/// The other values, and where.
pub(super) fn others(setting: &SettingInfo) -> Vec<Given> {
    let default = setting.default();
    let points = points(setting);
    let choices = needed_choices(&points);
    let mut by_value: Vec<(Option<Value>, Places)> = Vec::new();
    for (point, value) in &points {
        let is_told = *value != default && !(setting.is_inside && value.is_none());
        let place: Vec<&'static str> = choices.iter().map(|choice| point[choice]).collect();
        match by_value.iter_mut().find(|(other, _)| is_told && other == value) {
            Some((_, places)) => {
                places.insert(place);
            }
            None if is_told => by_value.push((value.clone(), BTreeSet::from([place]))),
            None => {}
        }
    }
    let all: Places = points.iter().map(|(point, _)| choices.iter().map(|choice| point[choice]).collect()).collect();
    by_value.into_iter().map(|(value, places)| Given { value, only_with: products(&choices, &places, &all) }).collect()
}

/// All experiments that have a setting, and its value there.
fn points(setting: &SettingInfo) -> Vec<(&'static Point, Option<Value>)> {
    // What is chosen depends on other choices than itself.
    let own = USUAL.iter().find(|(choice, _)| setting.written() == *choice);
    let is_choice = setting.short.is_some() || own.is_some();
    let section =
        SECTIONS.iter().find(|section| if is_choice { section.name.is_empty() } else { is_below(&setting.key, section.name) });
    let Some(section) = section else { return Vec::new() };
    let applies = |point: &Point| {
        if own.is_some_and(|(choice, usual)| point.get(choice).is_some_and(|chosen| chosen != usual)) {
            return false;
        }
        setting.only_with.iter().all(|condition| {
            let choice = if condition.key == "data.partition" { "partition" } else { condition.key.as_str() };
            point.get(choice).is_none_or(|kind| condition.values.iter().any(|known| known == kind))
        })
    };
    section
        .experiments
        .iter()
        .filter(|(point, _)| applies(point))
        .map(|(point, table)| {
            (point, value_at(table, &setting.key).map(|value| setting.accepts.chosen(value)).or_else(|| setting.unsaid()))
        })
        .collect()
}

fn is_below(key: &str, section: &str) -> bool {
    section.is_empty() || key.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The fewest choices that decide the value.
fn needed_choices(points: &[(&'static Point, Option<Value>)]) -> Vec<&'static str> {
    let mut choices: Vec<&'static str> = points.first().map(|(point, _)| point.keys().copied().collect()).unwrap_or_default();
    for choice in ["partition", "model", "method", "data", "preset"] {
        let without: Vec<&'static str> = choices.iter().copied().filter(|other| *other != choice).collect();
        if decides(points, &without) {
            choices = without;
        }
    }
    choices
}

fn decides(points: &[(&'static Point, Option<Value>)], choices: &[&'static str]) -> bool {
    let mut known: BTreeMap<Vec<&'static str>, &Option<Value>> = BTreeMap::new();
    points.iter().all(|(point, value)| {
        let place = choices.iter().map(|choice| point[choice]).collect();
        *known.entry(place).or_insert(value) == value
    })
}

/// Places as few products: those with the same rest are put together, and a choice that may be anything is left out.
fn products(choices: &[&'static str], places: &Places, all: &Places) -> Vec<GivenWhere> {
    let Some((choice, rest)) = choices.split_first() else { return vec![GivenWhere::new()] };
    let rests = |all: &Places| {
        let mut by_name: BTreeMap<&'static str, Places> = BTreeMap::new();
        for place in all {
            by_name.entry(place[0]).or_default().insert(place[1..].to_vec());
        }
        by_name
    };
    let (here, everywhere) = (rests(places), rests(all));
    let mut alike: Vec<(Vec<&'static str>, &Places, &Places)> = Vec::new();
    for (name, below) in &here {
        match alike.iter_mut().find(|(_, other, of)| *other == below && **of == everywhere[name]) {
            Some((names, ..)) => names.push(name),
            None => alike.push((vec![name], below, &everywhere[name])),
        }
    }
    let product = |(names, below, of): (Vec<&'static str>, &BTreeSet<_>, &BTreeSet<_>)| {
        let is_any = names.len() == everywhere.len();
        products(rest, below, of).into_iter().map(move |mut product| {
            if !is_any {
                product.insert(choice, names.clone());
            }
            product
        })
    };
    alike.into_iter().flat_map(product).collect()
}

/// The sections of all experiments. Which choices a section depends on is what [`Experiment::defaults`] makes it of.
fn sections() -> Vec<Section> {
    let mut sections = vec![
        Section { name: "method", experiments: Vec::new() },
        Section { name: "model", experiments: Vec::new() },
        Section { name: "training", experiments: Vec::new() },
        Section { name: "plan", experiments: Vec::new() },
        Section { name: "data.partition", experiments: Vec::new() },
        Section { name: "", experiments: Vec::new() },
    ];
    for preset in Preset::NAMES {
        for source in Source::all() {
            for method in Method::NAMES {
                for model in ModelConfig::NAMES {
                    add(&mut sections, preset, method, &source, model);
                }
            }
        }
    }
    for source in Source::all() {
        for rule in Partition::rules() {
            let partition =
                Partition::named(rule, &source.entry().partition).and_then(|partition| Value::try_from(partition).ok());
            let table = Table::from_iter([(
                "data".into(),
                Value::Table(Table::from_iter(partition.map(|value| ("partition".into(), value)))),
            )]);
            sections[4].experiments.push((Point::from([("data", source.name()), ("partition", rule)]), table));
        }
    }
    sections
}

/// What a preset makes of a method, a data set and a model.
fn add(
    sections: &mut [Section],
    preset_name: &'static str,
    method_name: &'static str,
    source: &Source,
    model_name: &'static str,
) {
    let data = source.name();
    let is_first = |name: &str, names: &[&str]| names.first() == Some(&name);
    let Some(preset) = Preset::named(preset_name) else { return };
    let values = PresetValues::of(preset, source);
    let Ok(method) = values.method(method_name) else { return };
    let Ok(model) = values.model(Some(model_name), &method) else { return };
    let put = |sections: &mut [Section], at: usize, point: &[(&'static str, &'static str)], key: &str, value: Option<Value>| {
        let table = Table::from_iter(value.map(|value| (key.to_owned(), value)));
        sections[at].experiments.push((point.iter().copied().collect(), table));
    };
    let point = [("preset", preset_name), ("data", data), ("method", method_name), ("model", model_name)];
    if is_first(model_name, &ModelConfig::NAMES) {
        put(sections, 0, &point[..3], "method", Value::try_from(&method).ok());
        put(sections, 3, &point[..3], "plan", Value::try_from(values.plan(&method)).ok());
        let whole =
            Experiment::defaults(preset, method_name, source.clone(), None).ok().and_then(|whole| Table::try_from(whole).ok());
        sections[5].experiments.push((point[..3].iter().copied().collect(), whole.unwrap_or_default()));
    }
    if is_first(method_name, &Method::NAMES) && Source::all().first() == Some(source) {
        put(sections, 1, &[point[0], point[3]], "model", Value::try_from(&model).ok());
    }
    put(sections, 2, &point, "training", Value::try_from(values.training(&method, &model)).ok());
}
