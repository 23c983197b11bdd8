//! `fedeq settings`: every setting there is.
use clap::{Args, ValueEnum};
use fedeq_core::Method;
use fedeq_run::closest::closest;
use fedeq_run::experiment::{Accepts, Given, GivenWhere, NamedChoice, SettingInfo, SettingValue};
use serde::Serialize;
use serde_json::Value as Json;

use super::completions;
use super::failure::{Failure, Outcome};
use super::output::{print, print_json};
use super::output::{wrapped, wrapped_after};

const EXAMPLES: &str = "\
Examples:
  fedeq settings                       all of them
  fedeq settings training              those of a section
  fedeq settings method.rho            one: its values, default, bounds, and what presets give it
  fedeq settings rate                  all with `rate` in their names
  fedeq settings --format json         for programs";

/// What may be asked for.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct SettingsCommand {
    /// Only settings whose keys begin with this, or else contain it
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true, add = completions::keys())]
    prefix: String,
    /// How to write them
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// A page of tables, as docs/settings.md.
    Markdown,
    /// For programs.
    Json,
}

/// A setting with what the presets make of it.
#[derive(Serialize)]
struct Described {
    #[serde(flatten)]
    setting: &'static SettingInfo,
    default: Option<Json>,
    given: Vec<Given>,
}

pub(super) fn run(arguments: &SettingsCommand) -> Outcome<()> {
    let found = SettingInfo::matching(&arguments.prefix);
    if found.is_empty() {
        return Err(unknown(&arguments.prefix));
    }
    match arguments.format {
        Format::Text => print(&found.iter().map(|setting| text_of(setting) + "\n").collect::<String>()),
        Format::Markdown => print(&page(&found)),
        Format::Json => {
            let described = |setting: &&'static SettingInfo| Described {
                setting,
                default: setting.default().and_then(|value| serde_json::to_value(value).ok()),
                given: setting.given(),
            };
            print_json(&found.iter().map(described).collect::<Vec<_>>())
        }
    }
}

fn unknown(prefix: &str) -> Failure {
    let near = closest(prefix, SettingInfo::all().iter().map(|setting| setting.key.as_str()))
        .or_else(|| SettingInfo::elsewhere(prefix).first().copied());
    let hint = near.map_or_else(|| "list all with `fedeq settings`".into(), |near| format!("did you mean `{near}`?"));
    Failure::request(format!("there is no setting `{prefix}`"), hint)
}

/// A setting in a few lines.
fn text_of(setting: &SettingInfo) -> String {
    let default = shown(setting.default().as_ref(), setting);
    let mut text = format!("{}: {} [{default}]\n", setting.written(), kind_of(&setting.accepts));
    text += &wrapped(&with_condition(setting), "    ");
    if let Accepts::Choice { values } = &setting.accepts {
        let longest = values.iter().map(|choice| choice.name.chars().count()).max().unwrap_or(0);
        for choice in values.iter().filter(|choice| !choice.about.is_empty()) {
            text += &wrapped_after(&format!("      {:<longest$}  ", choice.name), &choice.about);
        }
    }
    let given = setting.given();
    if !given.is_empty() {
        text += &wrapped(&format!("presets: {}", given_words(&given, setting)), "    ");
    }
    text
}

/// What it is, and where it means something.
fn with_condition(setting: &SettingInfo) -> String {
    let conditions: Vec<String> =
        setting.only_with.iter().map(|condition| format!("{}={}", condition.key, condition.values.join(","))).collect();
    if conditions.is_empty() {
        setting.about.clone()
    } else {
        format!("{} (only with {})", setting.about, conditions.join(" and "))
    }
}

/// What may stand there, in a few words; names are listed with what they mean.
fn kind_of(accepts: &Accepts) -> String {
    match accepts {
        Accepts::Choice { values } if values.iter().all(|choice| !choice.about.is_empty()) => {
            format!("one of {} values", values.len())
        }
        other => other.brief(),
    }
}

fn given_words(given: &[Given], setting: &SettingInfo) -> String {
    let words = |given: &Given| {
        let places: Vec<String> = given.only_with.iter().map(place_words).collect();
        format!("{} for {}", shown(given.value.as_ref(), setting), places.join(", and for "))
    };
    given.iter().map(words).collect::<Vec<_>>().join("; ")
}

fn place_words(place: &GivenWhere) -> String {
    let choice = |(choice, names): (&&str, &Vec<&str>)| match all_methods_but(choice, names) {
        Some(others) => format!("all methods but {}", others.join(", ")),
        None => format!("{choice} {}", names.join(", ")),
    };
    place.iter().map(choice).collect::<Vec<_>>().join(" with ")
}

/// The methods that are not among these, where that says it shorter.
fn all_methods_but(choice: &str, names: &[&str]) -> Option<Vec<&'static str>> {
    let others: Vec<&str> = Method::NAMES.into_iter().filter(|name| !names.contains(name)).collect();
    (choice == "method" && others.len() < names.len()).then_some(others)
}

/// A value as a person writes it.
fn shown(value: Option<&SettingValue>, setting: &SettingInfo) -> String {
    let is_kind = |name: &str| setting.accepts.names().contains(&name);
    match value {
        None => "not set".into(),
        Some(SettingValue::String(text)) => text.clone(),
        Some(SettingValue::Float(number)) => short(*number),
        Some(SettingValue::Table(table)) => match table.iter().next() {
            Some((kind, SettingValue::Float(number))) if is_kind(kind) => format!("{{ {kind} = {} }}", short(*number)),
            _ => SettingValue::Table(table.clone()).to_string(),
        },
        Some(other) => other.to_string(),
    }
}

/// A number without the digits that it has only since it was rounded to 32 bits.
fn short(number: f64) -> String {
    let single = number as f32;
    let write = |exact: String, scientific: String| if scientific.len() < exact.len() { scientific } else { exact };
    if f64::from(single) == number {
        write(single.to_string(), format!("{single:e}"))
    } else {
        write(number.to_string(), format!("{number:e}"))
    }
}

/// The page of the documentation.
fn page(settings: &[&SettingInfo]) -> String {
    let mut text = String::from(INTRODUCTION);
    let section = |setting: &SettingInfo| setting.key.split('.').next().unwrap_or_default().to_owned();
    for alike in settings.chunk_by(|a, b| section(a) == section(b)) {
        text += &format!("\n## {}\n\n| setting | values | default | |\n|---|---|---|---|\n", section(alike[0]));
        text.extend(alike.iter().map(|setting| row(setting)));
    }
    text
}

fn row(setting: &SettingInfo) -> String {
    let mut default = shown(setting.default().as_ref(), setting);
    let given = setting.given();
    if !given.is_empty() {
        default += &format!("; {}", given_words(&given, setting));
    }
    let mut about = with_condition(setting);
    if let Accepts::Choice { values } = &setting.accepts {
        let meaning = |choice: &NamedChoice| format!("<br>`{}`: {}", choice.name, choice.about);
        about.extend(values.iter().filter(|choice| !choice.about.is_empty()).map(meaning));
    }
    let cells =
        [format!("`{}`", setting.written()), setting.accepts.brief(), default, about].map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

const INTRODUCTION: &str = "\
# Settings

Every setting of an experiment, as `fedeq settings --format markdown` writes it: from the code that reads them. A test says whether this page is up to date.

In a file, a setting stands under its path: `learning_rate = 0.1` below `[training]`. On the command line it overrides the file: `--set training.learning_rate=0.1`. `fedeq settings PREFIX` shows some of them in
the terminal, `fedeq settings --format json` all of them to programs.

The default is that of `fedeq run` with what the setting needs; after it, what presets and data sets make of it.
";
