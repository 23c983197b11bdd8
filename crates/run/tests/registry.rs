//! The list of settings is true: the reader takes these and no others, with these defaults and these bounds.
mod support;

use std::collections::BTreeSet;

use fedeq_core::Error;
use fedeq_models::Task;
use fedeq_run::experiment::{Accepts, Bound, Condition, Experiment, Holds, SettingInfo, SettingValue as Value};
use toml::Table;

use support::{context, needs, overrides};

fn table_of(experiment: &Experiment) -> Table {
    Table::try_from(experiment).expect("an experiment can be written")
}

fn value_at<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(None::<&Value>, |at, part| {
        let table = match at {
            None => table,
            Some(value) => value.as_table()?,
        };
        Some(Some(table.get(part)?))
    })?
}

/// Makes a section stand at a path; where one of several kinds stands, the one that is asked for.
fn section<'a>(table: &'a mut Table, path: &[&str]) -> &'a mut Table {
    let mut at = table;
    for (depth, key) in path.iter().enumerate() {
        let above = path[..depth].join(".");
        let is_kind =
            SettingInfo::all().iter().any(|setting| setting.key == above && matches!(setting.accepts, Accepts::Choice { .. }));
        if is_kind {
            at.retain(|other, _| other == *key);
        }
        let value = at.entry(*key).or_insert_with(|| Value::Table(Table::new()));
        if !value.is_table() {
            *value = Value::Table(Table::new());
        }
        at = value.as_table_mut().expect("a table");
    }
    at
}

/// Puts a value at a key; in place of another kind, where one of several stands there.
fn put(table: &mut Table, key: &str, value: &Value) {
    let path: Vec<&str> = key.split('.').collect();
    let (last, above) = path.split_last().expect("a key");
    let here = section(table, above);
    if kinds_at(&above.join(".")).is_some() {
        here.clear();
    }
    here.insert((*last).to_owned(), value.clone());
}

/// The experiment in which the section of a setting stands, and nothing is said in it that has to be said.
fn around(setting: &SettingInfo) -> (Table, Vec<&str>) {
    let experiment = Experiment::read(None, &overrides(&needs(setting))).expect("the choices alone are sound");
    let path: Vec<&str> = setting.key.split('.').collect();
    let (_, above) = path.split_last().expect("a key has a last part");
    let mut table = table_of(&experiment);
    section(&mut table, above);
    (table, above.to_vec())
}

/// The names of the kinds of which one stands at a path, where it is such a place.
fn kinds_at(key: &str) -> Option<BTreeSet<String>> {
    let setting = SettingInfo::all().iter().find(|setting| setting.key == key)?;
    matches!(setting.accepts, Accepts::Choice { .. }).then(|| setting.accepts.names().into_iter().map(str::to_owned).collect())
}

/// The keys that serde knows at a path, by its own words.
fn keys_of_reader(mut table: Table, path: &[&str]) -> BTreeSet<String> {
    let here = section(&mut table, path);
    if kinds_at(&path.join(".")).is_some() {
        here.clear();
    }
    here.insert("no-such-key".into(), Value::Integer(1));
    let text = toml::to_string(&table).expect("TOML");
    let complaint = Experiment::from_resolved(&text).expect_err("there is no such key").to_string();
    // What TOML's own reader says of a table of a kind.
    if let Some(keys) = complaint.split_once("unexpected keys in table: no-such-key, available keys: ").map(|(_, keys)| keys) {
        return keys.split(", ").map(str::to_owned).collect();
    }
    let mut quoted = complaint.split('`').skip(1).step_by(2).map(str::to_owned);
    assert_eq!(quoted.next().as_deref(), Some("no-such-key"), "{path:?}: {complaint}");
    quoted.collect()
}

#[test]
fn the_reader_knows_exactly_the_settings_that_are_listed() {
    for setting in SettingInfo::all() {
        let (table, path) = around(setting);
        let known = keys_of_reader(table.clone(), &path);
        let above: String = path.iter().map(|key| format!("{key}.")).collect();
        let is_here = |other: &&SettingInfo| {
            // Those of the same kinds.
            other.only_with.iter().all(|condition| {
                let key = SettingInfo::named(&condition.key).next().expect("a choice is a setting").key.clone();
                value_at(&table, &key)
                    .and_then(Value::as_str)
                    .is_some_and(|kind| condition.values.iter().any(|name| name == kind))
            })
        };
        let listed: BTreeSet<String> = SettingInfo::all()
            .iter()
            .filter(is_here)
            .filter_map(|other| other.key.strip_prefix(&above))
            .map(|rest| rest.split('.').next().unwrap_or_default().to_owned())
            .collect();
        // What says which kind a section is, and what the program alone writes.
        let is_tag = |key: &String| {
            let key = format!("{above}{key}");
            key != "attack.kind" && SettingInfo::all().iter().any(|other| other.key == key && other.short.is_some())
        };
        let listed: BTreeSet<String> = listed.into_iter().filter(|key| !is_tag(key)).collect();
        let listed = kinds_at(&path.join(".")).unwrap_or(listed);
        let known: BTreeSet<String> = known.into_iter().filter(|key| key != "earlier_devices").collect();
        assert_eq!(known, listed, "below `{above}`, at `{}`", setting.key);
    }
}

#[test]
fn every_default_is_what_a_reader_fills_in() {
    for setting in SettingInfo::all() {
        let experiment = Experiment::read(None, &overrides(&needs(setting))).expect("sound");
        let filled_in = value_at(&table_of(&experiment), &setting.key).map(|value| setting.accepts.chosen(value));
        if filled_in.is_some() && setting.default() == filled_in {
            continue;
        }
        // In a section that is not there by itself: what is filled in where one of those around it is there, and nothing is said in it.
        let said: Vec<(Table, Option<Value>)> =
            with_what_is_optional(setting).into_iter().map(|table| filled_in_by(table, setting)).collect();
        // What is usual is not always written.
        let is_right = |(table, said): &(Table, Option<Value>)| {
            setting.default() == *said
                || (said.is_none() && setting.default().is_some_and(|default| is_left_out(table.clone(), setting, &default)))
        };
        assert!(said.iter().any(is_right), "{}: {:?}, not {said:?}", setting.key, setting.default());
        let has_value = |(table, _): &(Table, Option<Value>)| may_be_left_out(table, setting);
        let has_none = !setting.optional && setting.default().is_none();
        assert!(!(has_none && said.iter().any(has_value)), "{} may be left out, and has no default", setting.key);
    }
}

/// Whether an experiment is sound in which the section of a setting is there and does not say it.
fn may_be_left_out(table: &Table, setting: &SettingInfo) -> bool {
    let above = setting.key.rsplit_once('.').map(|(above, _)| above);
    // Of several kinds one stands there, and what another holds is not left out.
    let is_kind = above.is_some_and(|above| kinds_at(above).is_some());
    !is_kind
        && above.is_none_or(|above| value_at(table, above).is_some_and(Value::is_table))
        && value_at(table, &setting.key).is_none()
        && Experiment::from_resolved(&toml::to_string(table).expect("TOML")).is_ok()
}

#[test]
fn an_experiment_filled_in_leaves_out_only_what_is_left_open_and_is_the_same_experiment() {
    let models = SettingInfo::named("model").next().expect("a setting").accepts.names().into_iter();
    let experiments = models.map(|name| vec![format!("model={name}")]).chain([
        vec!["plan.secure_aggregation.largest_weight=100".into(), "method=fedavg".into()],
        vec!["plan.compression.up=int8".into(), "training.projection.ball=0.9".into(), "model=deq-mlp".into()],
        vec!["attack=noise".into(), "plan.aggregation.rule=median".into(), "method=fedavg".into()],
    ]);
    let always: Vec<&SettingInfo> =
        SettingInfo::all().iter().filter(|setting| !setting.optional && setting.default().is_some()).collect();
    for settings in experiments {
        let experiment = Experiment::read(None, &overrides(&settings)).expect("sound");
        let text = experiment.to_full_toml().expect("TOML");
        assert_eq!(Experiment::from_resolved(&text).expect("a resolved experiment"), experiment, "{text}");
        let table: Table = toml::from_str(&text).expect("TOML");
        for setting in &always {
            let above = setting.key.rsplit_once('.').map(|(above, _)| above);
            let is_here = above.is_none_or(|above| value_at(&table, above).is_some_and(Value::is_table));
            let is_chosen = |condition: &Condition| {
                condition.values.iter().any(|value| settings.contains(&format!("{}={value}", condition.key)))
            };
            let applies = setting.only_with.iter().all(is_chosen);
            let is_kind = above.is_some_and(|above| kinds_at(above).is_some());
            let is_said = value_at(&table, &setting.key).is_some();
            assert!(is_said || !is_here || !applies || is_kind, "{} is not in {text}", setting.key);
        }
        let json = experiment.to_full_json().expect("JSON");
        assert_eq!(keys(&json), keys(&serde_json::to_value(&table).expect("JSON")), "{settings:?}");
        assert_eq!(serde_json::from_value::<Experiment>(json).expect("an experiment"), experiment);
    }
}

/// The keys of all values that are no tables; what is left open, which JSON writes as null, has none.
fn keys(json: &serde_json::Value) -> Vec<String> {
    if json.is_null() {
        return Vec::new();
    }
    let Some(table) = json.as_object() else { return vec![String::new()] };
    let below = |(key, value): (&String, &serde_json::Value)| {
        keys(value).into_iter().map(|rest| format!("{key}.{rest}")).collect::<Vec<_>>()
    };
    table.iter().flat_map(below).collect()
}

fn filled_in_by(table: Table, setting: &SettingInfo) -> (Table, Option<Value>) {
    let value = match Experiment::from_resolved(&toml::to_string(&table).expect("TOML")) {
        Ok(experiment) => value_at(&table_of(&experiment), &setting.key).map(|value| setting.accepts.chosen(value)),
        Err(error) => {
            let is_incomplete = ["missing field", "wanted exactly 1 element", "map with a single key"]
                .iter()
                .any(|words| error.to_string().contains(words));
            assert!(is_incomplete, "{}: {error}", setting.key);
            None
        }
    };
    (table, value)
}

/// The experiments in which one of the sections and kinds around a setting is there that need not be, and nothing is said in it.
fn with_what_is_optional(setting: &SettingInfo) -> Vec<Table> {
    let path: Vec<&str> = setting.key.split('.').collect();
    let is_optional = |depth: &usize| {
        let is_section =
            SettingInfo::all().iter().any(|other| other.key == path[..*depth].join(".") && other.accepts == Accepts::Section);
        is_section || kinds_at(&path[..depth - 1].join(".")).is_some()
    };
    let cleared = |depth: usize| {
        let mut table = around(setting).0;
        let section = section(&mut table, &path[..depth]);
        section.clear();
        if path[0] == "attack" && setting.key != "attack.kind" {
            // It has to be said, whatever else is.
            section.insert("kind".into(), Value::String("noise".into()));
        }
        table
    };
    let found: Vec<Table> = (1..path.len()).rev().filter(is_optional).map(cleared).collect();
    if found.is_empty() { vec![around(setting).0] } else { found }
}

/// Whether an experiment in which a default is said is the same as one in which it is not.
fn is_left_out(table: Table, setting: &SettingInfo, default: &Value) -> bool {
    let mut saying = table.clone();
    put(&mut saying, &setting.key, default);
    let read = |table: &Table| Experiment::from_resolved(&toml::to_string(table).expect("TOML"));
    matches!((read(&saying), read(&table)), (Ok(saying), Ok(silent)) if saying == silent)
}

#[test]
fn every_value_that_presets_give_is_what_they_give() {
    for setting in SettingInfo::all() {
        for given in setting.given() {
            for place in &given.only_with {
                let mut settings: Vec<String> = needs(setting);
                for (choice, names) in place {
                    let key = if *choice == "partition" { "data.partition" } else { choice };
                    settings.retain(|said| !said.starts_with(&format!("{key}=")));
                    settings.push(format!("{key}={}", names[0]));
                }
                let table = table_of(&Experiment::read(None, &overrides(&settings)).expect("choices alone are sound"));
                let value = value_at(&table, &setting.key).map(|value| setting.accepts.chosen(value));
                let is_usual = || given.value.as_ref().is_some_and(|given| is_left_out(table.clone(), setting, given));
                assert!(value == given.value || (value.is_none() && is_usual()), "{} with {settings:?}: {value:?}", setting.key);
            }
        }
    }
}

/// Values within the bounds, where what else an experiment is made of leaves no room for those at the bound itself.
const INSIDE: [(&str, f64); 8] = [
    // As many as own something of what is generated here.
    ("data.partition.clients", 20.0),
    // All that is generated must fit in memory.
    ("data.source.problem.clients", 100.0),
    ("data.source.problem.samples", 1_000.0),
    ("data.source.problem.width", 1_000.0),
    // As many blocks as share the parameters of the smallest network.
    ("model.blocks", 2.0),
    // One client of thirty.
    ("plan.sampling.fraction", 0.04),
    // No draw gives every client a sample.
    ("data.partition.alpha", 1.0),
    // The largest network has fewer parameters than so many states make.
    ("model.hidden", 16_000.0),
];

/// An experiment with one value in a setting, past the reader and everything that refuses settings.
fn accepted(setting: &SettingInfo, value: &Value) -> Result<(), Error> {
    let settings = context(setting);
    let experiment = Experiment::read(None, &overrides(&settings)).unwrap_or_else(|error| panic!("{}: {error}", setting.key));
    let mut table = table_of(&experiment);
    put(&mut table, &setting.key, value);
    // Nothing between here and the experiment looks at bounds.
    let experiment = Experiment::from_resolved(&toml::to_string(&table).expect("TOML"))?;
    experiment.check_settings()?;
    let is_seen_with_data =
        setting.key.starts_with("data.") || ["plan.sampling.fraction", "plan.privacy.delta"].contains(&setting.key.as_str());
    if is_seen_with_data && experiment.data.source.entry().places.is_empty() {
        return experiment.prepare().map(|_| ());
    }
    if !setting.key.starts_with("model.") {
        return Ok(());
    }
    let fits = [Task::vector(64, 10), Task::image(28, 28, 1, 10), Task::next_symbol(16, 90)];
    let graphs: Vec<_> = fits.iter().map(|task| experiment.model.graph(task)).collect();
    match graphs.iter().any(Result::is_ok) {
        true => Ok(()),
        false => Err(Error::invalid(format!("{graphs:?}"), "")),
    }
}

/// A value at a bound, or just inside where the bound is not included, and one beyond.
fn on_both_sides(bound: Bound, is_upper: bool, is_whole: bool) -> [Value; 2] {
    let away = if is_upper { 1.0 } else { -1.0 };
    if is_whole {
        return [Value::Integer(bound.value as i64), Value::Integer(bound.value as i64 + away as i64)];
    }
    let step = if bound.value == 0.0 { 1e-6 } else { bound.value * 1e-3 };
    if bound.included {
        return [Value::Float(bound.value), Value::Float(bound.value + away * step)];
    }
    [Value::Float(bound.value - away * step), Value::Float(bound.value)]
}

#[test]
fn every_bound_is_where_values_begin_to_be_refused() {
    let mut wrong: Vec<String> = Vec::new();
    for setting in SettingInfo::all() {
        let (Accepts::Whole(range) | Accepts::Number(range)) = &setting.accepts else { continue };
        let is_whole = matches!(setting.accepts, Accepts::Whole(_));
        for (bound, is_upper) in [(range.least, false), (range.most, true)] {
            let Some(bound) = bound else { continue };
            let [mut inside, beyond] = on_both_sides(bound, is_upper, is_whole);
            if let Some((_, value)) = INSIDE.iter().find(|(key, _)| *key == setting.key && (!bound.included || is_upper)) {
                inside = if is_whole { Value::Integer(*value as i64) } else { Value::Float(*value) };
            }
            if let Err(error) = accepted(setting, &inside) {
                wrong.push(format!("`{}={inside}` is within its bounds and refused: {error}", setting.key));
            }
            if accepted(setting, &beyond).is_ok() {
                wrong.push(format!("`{}={beyond}` is beyond its bounds and accepted", setting.key));
            }
            let mut settings = context(setting);
            settings.push(format!("{}={beyond}", setting.key));
            let error = Experiment::read(None, &overrides(&settings)).expect_err("beyond its bounds");
            assert!(error.to_string().starts_with(&format!("`{}` is `{beyond}`", setting.key)), "{}: {error}", setting.key);
            assert!(error.hint().starts_with("give "), "{}: {}", setting.key, error.hint());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_choice_can_be_made_and_no_other() {
    for setting in SettingInfo::all() {
        let Accepts::Choice { values } = &setting.accepts else { continue };
        let with = |value: &str| {
            let mut settings = needs(setting);
            settings.push(format!("{}={value}", setting.written()));
            settings.extend(if setting.key.starts_with("attack") { vec!["method=fedavg".into()] } else { vec![] });
            Experiment::read(None, &overrides(&settings))
        };
        for choice in values.iter().filter(|choice| matches!(choice.holds, Holds::Nothing | Holds::Settings)) {
            if let Err(error) = with(&choice.name) {
                panic!("{}={}: {error}", setting.key, choice.name);
            }
        }
        let error = with("no-such-choice").expect_err("there is none");
        assert!(error.to_string().contains(&format!("`{}`", "no-such-choice")), "{}: {error}", setting.key);
    }
}

/// Every value of a table that is no table, as a setting.
fn leaves(table: &Table, prefix: &str) -> Vec<String> {
    let below = |(key, value): (&String, &Value)| match value {
        Value::Table(inner) => leaves(inner, &format!("{prefix}{key}.")),
        value => vec![format!("{prefix}{key}={value}")],
    };
    table.iter().flat_map(below).collect()
}

/// The settings in a part of an experiment that change something else when they are set to the value they have anyway.
fn changing(choices: &[String], around: &[String], part: &str) -> Vec<String> {
    let experiment = Experiment::read(None, &overrides(choices)).unwrap_or_else(|error| panic!("{choices:?}: {error}"));
    let is_part = |leaf: &String| {
        let key = leaf.split('=').next().unwrap_or_default();
        let is_below = part.is_empty() || key == part || key.strip_prefix(part).is_some_and(|rest| rest.starts_with('.'));
        // The program alone writes it; an experiment that names its folder is asked whether there is anything.
        is_below && key != "engine.earlier_devices" && key != "data.folder"
    };
    let changes = |leaf: &String| {
        let given: Vec<String> = around.iter().chain([leaf]).cloned().collect();
        match Experiment::read(None, &overrides(&given)) {
            Ok(other) => (other != experiment).then(|| format!("{leaf} after {around:?}")),
            Err(error) => Some(format!("{leaf} after {around:?}: {error}")),
        }
    };
    leaves(&table_of(&experiment), "").iter().filter(|leaf| is_part(leaf)).filter_map(changes).collect()
}

#[test]
fn a_setting_that_is_set_to_its_own_value_changes_nothing() {
    let mut wrong: Vec<String> = Vec::new();
    let names = |key: &str| SettingInfo::named(key).next().expect("a setting").accepts.names();
    for preset in names("preset") {
        let preset = format!("preset={preset}");
        wrong.extend(changing(std::slice::from_ref(&preset), std::slice::from_ref(&preset), ""));
        for (choice, part) in
            [("method", "method"), ("model", "model"), ("model", "training"), ("data", "data"), ("data", "plan")]
        {
            for name in names(choice) {
                let chosen = [preset.clone(), format!("{choice}={name}")];
                wrong.extend(changing(&chosen, &chosen, part));
            }
        }
    }
    for rule in names("data.partition") {
        let chosen = [format!("data.partition={rule}")];
        wrong.extend(changing(&chosen, &chosen, "data.partition"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn one_setting_of_a_kind_or_of_an_optional_section_leaves_its_others_as_they_are_listed() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for setting in SettingInfo::all() {
        let needed = needs(setting);
        let with = |said: String| [needed.clone(), vec![said]].concat();
        let parts: Vec<(String, String)> = match &setting.accepts {
            Accepts::Choice { values } => {
                let settings = values.iter().filter(|choice| choice.holds == Holds::Settings);
                settings
                    .map(|choice| (format!("{}={}", setting.key, choice.name), format!("{}.{}", setting.key, choice.name)))
                    .collect()
            }
            Accepts::Section => vec![(format!("{}={{}}", setting.key), setting.key.clone())],
            _ => Vec::new(),
        };
        for (said, part) in parts {
            // Some sections hold what has to be given.
            if Experiment::read(None, &overrides(&with(said.clone()))).is_ok() {
                wrong.extend(changing(&with(said), &needed, &part));
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen} kinds and sections");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_tolerance_of_the_implicit_gradient_leaves_its_steps() {
    let read = |texts: &[&str]| {
        Experiment::read(None, &texts.iter().map(|text| text.parse().expect("a setting")).collect::<Vec<_>>()).expect("sound")
    };
    let steps = |texts: &[&str]| value_at(&table_of(&read(texts)), "model.equilibrium.adjoint.implicit.stop.max_steps").cloned();
    assert_eq!(steps(&["model.equilibrium.adjoint.implicit.stop.relative=0.01"]), Some(Value::Integer(50)));
    assert_eq!(steps(&["preset=reference", "model.equilibrium.adjoint.implicit.stop.relative=0.01"]), Some(Value::Integer(50)));
}

#[test]
fn every_setting_says_in_one_sentence_what_it_is() {
    for setting in SettingInfo::all() {
        assert!(setting.about.len() > 5 && !setting.about.contains("[`") && !setting.about.contains('\n'), "{setting:?}");
    }
}

#[test]
fn what_was_perhaps_meant_is_said_with_its_whole_path() {
    let refusal = |text: &str| Experiment::read(None, &overrides(&[text.to_owned()])).expect_err("refused").hint();
    assert_eq!(refusal("learning_rate=0.1"), "did you mean `training.learning_rate`?");
    assert_eq!(refusal("rounds=3"), "did you mean `plan.rounds`?");
    assert_eq!(refusal("batchsize=3"), "did you mean `training.batch_size`?");
    assert_eq!(refusal("training.rounds=3"), "did you mean `plan.rounds`?");
    assert_eq!(refusal("plan.rounds=0"), "give a whole number from 1 to 1,000,000");
}
