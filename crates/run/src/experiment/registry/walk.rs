//! From the schema of an experiment to its settings.
use schemars::generate::SchemaSettings;
use serde_json::Value as Json;
use toml::Value;

use super::super::Experiment;
use super::accepts::{Accepts, Bound, Holds, NamedChoice, Range};
use super::{Condition, Kinds, SettingInfo, Tagged};

/// All that the schema says.
pub(super) struct Found {
    pub(super) settings: Vec<SettingInfo>,
    pub(super) kinds: Vec<Kinds>,
    pub(super) tagged: Vec<Tagged>,
}

/// The sections in the order in which people think of them.
const ORDER: [&str; 9] = ["preset", "seed", "data", "model", "method", "training", "plan", "engine", "attack"];

/// Keys that may be left out of a path, beside the names of kinds.
const SHORT: [(&str, &str); 2] = [("data.source.name", "data"), ("attack.kind", "attack")];

/// It is set by the program.
const NOT_SET: &str = "engine.earlier_devices";

/// Every setting of an experiment.
pub(super) fn settings() -> Found {
    let settings = SchemaSettings::draft2020_12().for_deserialize().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<Experiment>().to_value();
    let mut walk = Walk::default();
    walk.section(&schema, &Place::default());
    let mut settings = merged(walk.settings);
    let place = |key: &str| ORDER.iter().position(|first| key.split('.').next() == Some(first));
    settings.sort_by_key(|setting| place(&setting.key));
    Found { settings, kinds: walk.kinds, tagged: walk.tagged }
}

#[derive(Default)]
struct Walk {
    settings: Vec<SettingInfo>,
    kinds: Vec<Kinds>,
    tagged: Vec<Tagged>,
}

/// Where a schema stands, and what was chosen on the way.
#[derive(Clone, Default)]
struct Place {
    path: Vec<String>,
    conditions: Vec<Condition>,
    is_inside: bool,
    /// What the section around it is if it does not say this.
    default: Option<Json>,
}

impl Place {
    fn below(&self, key: &str) -> Self {
        let default = self.default.as_ref().and_then(|default| default.get(key)).cloned();
        Self { path: [self.path.as_slice(), &[key.to_owned()]].concat(), default, ..self.clone() }
    }

    fn key(&self) -> String {
        self.path.join(".")
    }

    /// Below a choice or in a section that need not be there.
    fn inside(mut self) -> Self {
        self.is_inside = true;
        self
    }

    /// A name that a person may write for the section itself.
    fn short(&self) -> Option<String> {
        SHORT.iter().find(|(key, _)| *key == self.key()).map(|(_, short)| (*short).to_owned())
    }
}

impl Walk {
    /// All settings of a table.
    fn section(&mut self, schema: &Json, place: &Place) {
        for (key, schema) in properties(schema) {
            let mut below = place.below(key);
            below.default = below.default.or_else(|| schema.get("default").cloned());
            if below.key() != NOT_SET {
                self.setting(schema, &below);
            }
        }
    }

    /// One setting, or all of a section.
    fn setting(&mut self, schema: &Json, place: &Place) {
        let about = sentence(schema);
        let (schema, optional) = without_null(schema);
        let place = if optional { place.clone().inside() } else { place.clone() };
        if let Some(accepts) = leaf(&schema) {
            self.add(&place, about, accepts, optional);
        } else if let Some((tag, variants)) = tagged(&schema) {
            self.tagged_section(&tag, &variants, &place, &about);
        } else if let Some(variants) = variants(&schema) {
            self.choice(&variants, &place, about, optional);
        } else {
            if optional {
                self.add(&place, about, Accepts::Section, optional);
            }
            let inner = if optional { Place { default: schema.get("default").cloned(), ..place } } else { place };
            self.section(&schema, &inner);
        }
    }

    fn add(&mut self, place: &Place, about: String, accepts: Accepts, optional: bool) {
        // A value alone that may be left out is in no section; its own default is that it is not there.
        let default = place.default.as_ref().filter(|default| !default.is_null()).and_then(toml_of);
        let section_default = default.map(|default| accepts.chosen(&default));
        self.settings.push(SettingInfo {
            key: place.key(),
            path: place.path.clone(),
            short: place.short(),
            about,
            accepts,
            optional,
            only_with: place.conditions.clone(),
            is_inside: place.is_inside,
            section_default,
        });
    }

    /// A section whose kind is said by a key of its own, and the settings of each kind.
    fn tagged_section(&mut self, tag: &str, variants: &[(String, &Json)], place: &Place, about: &str) {
        self.tagged.push(Tagged { path: place.path.clone(), tag: tag.to_owned() });
        let choice =
            |(name, schema): &(String, &Json)| NamedChoice { name: name.clone(), about: sentence(schema), holds: Holds::Nothing };
        let below = place.below(tag);
        self.add(&below, about.to_owned(), Accepts::Choice { values: variants.iter().map(choice).collect() }, false);
        let short = below.short().unwrap_or_else(|| place.key());
        if let Some(setting) = self.settings.last_mut() {
            setting.short = Some(short.clone());
        }
        for (name, schema) in variants {
            let mut chosen = place.clone();
            // What another kind is by default says nothing of this one.
            chosen.default = None;
            chosen.conditions.push(Condition { key: short.clone(), values: vec![name.clone()] });
            let mut others = (*schema).clone();
            if let Some(properties) = others.get_mut("properties").and_then(Json::as_object_mut) {
                properties.remove(tag);
            }
            self.section(&others, &chosen);
        }
    }

    /// A key that holds one of several kinds, and the settings of each.
    fn choice(&mut self, variants: &[Variant<'_>], place: &Place, about: String, optional: bool) {
        let values = variants.iter().map(|variant| variant.choice.clone()).collect();
        self.add(place, about, Accepts::Choice { values }, optional);
        if variants.iter().all(|variant| variant.content.is_none()) {
            return;
        }
        let nameable = |variant: &&Variant<'_>| variant.choice.holds == Holds::Settings;
        let nameable: Vec<String> = variants.iter().filter(nameable).map(|variant| variant.choice.name.clone()).collect();
        match self.kinds.iter_mut().find(|kinds| kinds.path == place.path) {
            Some(known) => {
                known.nameable.extend(nameable.into_iter().filter(|name| !known.nameable.contains(name)).collect::<Vec<_>>())
            }
            None => self.kinds.push(Kinds { path: place.path.clone(), nameable }),
        }
        for Variant { choice, content } in variants {
            let Some(content) = content else { continue };
            // What stands there by default, if it is this kind.
            let mut below = place.below(&choice.name).inside();
            below.default = content.get("default").cloned().or(below.default);
            match choice.holds {
                Holds::Value => self.setting_of_choice(content, &below, &choice.about),
                _ => self.section(content, &below),
            }
        }
    }

    /// What a kind holds in place of settings; it is described by its kind.
    fn setting_of_choice(&mut self, schema: &Json, place: &Place, about: &str) {
        let before = self.settings.len();
        self.setting(schema, place);
        if let Some(setting) = self.settings.get_mut(before).filter(|setting| setting.about.is_empty()) {
            about.clone_into(&mut setting.about);
        }
    }
}

/// One of several kinds, and the schema of what stands below its name.
struct Variant<'a> {
    choice: NamedChoice,
    content: Option<&'a Json>,
}

fn properties(schema: &Json) -> impl Iterator<Item = (&String, &Json)> {
    schema.get("properties").and_then(Json::as_object).into_iter().flatten()
}

fn is_null(schema: &Json) -> bool {
    schema.get("type").and_then(Json::as_str) == Some("null")
}

/// The schema of what may stand there, and whether it may also be left open.
fn without_null(schema: &Json) -> (Json, bool) {
    if let Some(either) = schema.get("anyOf").and_then(Json::as_array) {
        let others: Vec<&Json> = either.iter().filter(|one| !is_null(one)).collect();
        if let ([only], true) = (others.as_slice(), others.len() < either.len()) {
            return ((*only).clone(), true);
        }
    }
    let mut schema = schema.clone();
    let mut optional = false;
    if let Some(types) = schema.get_mut("type").and_then(Json::as_array_mut) {
        optional = types.iter().any(|one| one == "null");
        types.retain(|one| one != "null");
        if let [only] = types.as_slice() {
            schema["type"] = only.clone();
        }
    }
    for list in ["enum", "oneOf"] {
        if let Some(all) = schema.get_mut(list).and_then(Json::as_array_mut) {
            let before = all.len();
            all.retain(|one| !one.is_null() && !is_null(one));
            optional |= all.len() < before;
        }
    }
    (schema, optional)
}

/// A value that is no table.
fn leaf(schema: &Json) -> Option<Accepts> {
    if schema.get("enum").is_some() || schema.get("oneOf").is_some() {
        return None;
    }
    match schema.get("type").and_then(Json::as_str)? {
        "integer" => Some(Accepts::Whole(range(schema))),
        "number" => Some(Accepts::Number(range(schema))),
        "boolean" => Some(Accepts::Flag),
        "string" if schema.get("const").is_none() => Some(Accepts::Text),
        "array" => {
            let of = schema.get("items").or_else(|| schema.get("prefixItems").and_then(|items| items.get(0)));
            let of = of.and_then(leaf).unwrap_or(Accepts::Text);
            Some(Accepts::List { of: Box::new(of), most: schema.get("maxItems").and_then(Json::as_u64) })
        }
        _ => None,
    }
}

fn range(schema: &Json) -> Range {
    let bound = |name: &str, included: bool| schema.get(name).and_then(Json::as_f64).map(|value| Bound { value, included });
    let (least, most) = (bound("minimum", true), bound("maximum", true));
    Range { least: bound("exclusiveMinimum", false).or(least), most: bound("exclusiveMaximum", false).or(most) }
}

/// The key that says which kind a table is, and the schema of each kind.
fn tagged(schema: &Json) -> Option<(String, Vec<(String, &Json)>)> {
    let all = schema.get("oneOf")?.as_array()?;
    let tag =
        |schema: &Json| properties(schema).find_map(|(key, value)| Some((key.clone(), value.get("const")?.as_str()?.to_owned())));
    let (key, _) = all.first().and_then(tag)?;
    let kinds: Option<Vec<(String, &Json)>> =
        all.iter().map(|one| tag(one).filter(|(other, _)| *other == key).map(|(_, name)| (name, one))).collect();
    Some((key, kinds?))
}

/// The kinds of which one stands there: names alone, or names with something below them.
fn variants(schema: &Json) -> Option<Vec<Variant<'_>>> {
    let plain = |name: &Json, about: String| {
        let choice = NamedChoice { name: name.as_str()?.to_owned(), about, holds: Holds::Nothing };
        Some(Variant { choice, content: None })
    };
    if let Some(names) = schema.get("enum").and_then(Json::as_array) {
        return names.iter().map(|name| plain(name, String::new())).collect();
    }
    let mut found = Vec::new();
    for one in schema.get("oneOf")?.as_array()? {
        if let Some(name) = one.get("const") {
            found.push(plain(name, sentence(one))?);
        } else if let Some(names) = one.get("enum").and_then(Json::as_array) {
            found.extend(names.iter().filter_map(|name| plain(name, String::new())));
        } else {
            let (name, content) = properties(one).next()?;
            let choice = NamedChoice { name: name.clone(), about: sentence(one), holds: holds(content) };
            found.push(Variant { choice, content: Some(content) });
        }
    }
    Some(found)
}

fn holds(content: &Json) -> Holds {
    let is_table = content.get("type").and_then(Json::as_str) == Some("object");
    let has_needed = content.get("required").and_then(Json::as_array).is_some_and(|needed| !needed.is_empty());
    match (is_table, has_needed) {
        (false, _) => Holds::Value,
        (true, false) => Holds::Settings,
        (true, true) => Holds::NeededSettings,
    }
}

fn toml_of(value: &Json) -> Option<Value> {
    Value::try_from(value).ok()
}

/// The same setting of several kinds becomes one.
fn merged(settings: Vec<SettingInfo>) -> Vec<SettingInfo> {
    let mut merged: Vec<SettingInfo> = Vec::new();
    for setting in settings {
        match merged.iter_mut().find(|other| are_alike(other, &setting)) {
            Some(other) => {
                let last = setting.only_with.last().map(|condition| condition.values.clone()).unwrap_or_default();
                if let Some(condition) = other.only_with.last_mut() {
                    condition.values.extend(last);
                }
            }
            None => merged.push(setting),
        }
    }
    merged
}

fn are_alike(one: &SettingInfo, other: &SettingInfo) -> bool {
    let around = |setting: &SettingInfo| setting.only_with.split_last().map(|(last, around)| (last.key.clone(), around.to_vec()));
    one.key == other.key
        && one.about == other.about
        && one.accepts == other.accepts
        && one.optional == other.optional
        && one.is_inside == other.is_inside
        && (!one.is_inside || one.section_default == other.section_default)
        && around(one).is_some()
        && around(one) == around(other)
}

/// The first sentence of what a doc comment says, as plain text.
fn sentence(schema: &Json) -> String {
    let text = schema.get("description").and_then(Json::as_str).unwrap_or_default();
    let text = text.split("\n\n").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let text = without_links(&text);
    let end = text.match_indices(". ").map(|(at, _)| at).find(|at| {
        let next = text[at + 2..].chars().next();
        next.is_some_and(|next| next.is_uppercase() || next == '`')
    });
    text[..end.unwrap_or(text.len())].trim_end_matches('.').to_owned()
}

/// What a reader sees of a text with links.
fn without_links(text: &str) -> String {
    let (mut seen, mut rest, mut is_code) = (String::new(), text, false);
    while let Some(letter) = rest.chars().next() {
        is_code ^= letter == '`';
        let link = if letter == '[' && !is_code { link_at(rest) } else { None };
        match link {
            Some((shown, length)) => {
                seen.push_str(shown);
                rest = &rest[length..];
            }
            None => {
                seen.push(letter);
                rest = &rest[letter.len_utf8()..];
            }
        }
    }
    seen
}

/// What is shown of the link that a text begins with, and how long it is.
fn link_at(text: &str) -> Option<(&str, usize)> {
    let end = text.find(']')?;
    let target = text[end + 1..].strip_prefix('(').and_then(|target| target.find(')'));
    Some((&text[1..end], end + 1 + target.map_or(0, |target| target + 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doc_comment_becomes_one_plain_sentence() {
        let of = |text: &str| sentence(&serde_json::json!({ "description": text }));
        assert_eq!(of("Step size, see [`Device`].\nThe rest."), "Step size, see `Device`");
        assert_eq!(of("The [kind](Kind::of) of it: 0.5 or `[1, 2]`.\n\nMore."), "The kind of it: 0.5 or `[1, 2]`");
    }
}
