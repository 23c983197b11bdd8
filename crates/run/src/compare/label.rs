//! What clusters are called: only what sets them apart. The page does the same (`crates/viewer/assets/labels.js`), and both are tested by `browser/cases.json`.
use std::collections::BTreeSet;

use fedeq_core::Method;

use super::group::Cluster;

/// Named by their own words, not as settings.
const SPOKEN: [&str; 4] = ["method.name", "model.name", "data.source.name", "preset"];

/// Gives every cluster its label, and the settings in it.
pub(super) fn label(clusters: &mut [Cluster]) {
    let all = clusters.to_vec();
    for cluster in clusters {
        cluster.differs = differences(cluster, &all);
        cluster.label = label_of(cluster, &all);
    }
}

/// As little as tells a cluster from the others: its method where there are several, its model where its method has several, its data where there are several, and settings that differ.
fn label_of(cluster: &Cluster, all: &[Cluster]) -> String {
    let [method, model, data] = &cluster.names;
    let differs = |place: usize| all.iter().any(|other| other.names[place] != cluster.names[place]);
    let has_models = all.iter().any(|other| other.names[0] == *method && other.names[1] != *model);
    let title = Method::title(method).to_owned();
    let words = [differs(0).then(|| title.clone()), has_models.then(|| model.clone()), differs(2).then(|| format!("on {data}"))];
    let words: Vec<String> = words.into_iter().flatten().collect();
    let said = [words.join(" ")].into_iter().chain(cluster.differs.iter().cloned());
    let label = said.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    if label.is_empty() { title } else { label }
}

/// The settings in which clusters of the same method, model and data differ, as people read them: `rho = 0.1`.
fn differences(cluster: &Cluster, all: &[Cluster]) -> Vec<String> {
    let alike: Vec<&Cluster> = all.iter().filter(|other| other.names == cluster.names).collect();
    let keys: BTreeSet<&String> = alike.iter().flat_map(|other| other.settings.keys()).collect();
    let differs = |key: &&String| alike.iter().any(|other| other.settings.get(*key) != cluster.settings.get(*key));
    let keys: Vec<&String> = keys.into_iter().filter(differs).filter(|key| !SPOKEN.contains(&key.as_str())).collect();
    let value = |key: &String| cluster.settings.get(key).map_or("–", |value| plain(value));
    keys.iter().map(|key| format!("{} = {}", short_key(key, &keys), value(key))).collect()
}

/// Without the quotes of a text.
fn plain(value: &str) -> &str {
    value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value)
}

/// The last part of a setting's path that says something, unless another of these settings ends alike.
fn short_key<'a>(key: &'a str, keys: &[&String]) -> &'a str {
    let is_unclear = keys.iter().any(|other| *other != key && last_part(other) == last_part(key));
    if is_unclear { key } else { last_part(key) }
}

fn last_part(path: &str) -> &str {
    let path = path.strip_suffix(".name").unwrap_or(path);
    path.rsplit('.').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn cluster(case: &Value) -> Cluster {
        let text = |key: &str| case[key].as_str().expect("a text").to_owned();
        let settings = case["settings"].as_object().expect("settings").iter();
        Cluster {
            names: ["method", "model", "data"].map(text),
            label: String::new(),
            differs: Vec::new(),
            settings: settings.map(|(key, value)| (key.clone(), value.as_str().expect("a text").to_owned())).collect(),
            members: Vec::new(),
        }
    }

    #[test]
    fn labels_are_those_of_the_page() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../browser/cases.json");
        let cases: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("cases")).expect("JSON");
        for case in cases["labels"].as_array().expect("a list") {
            let mut clusters: Vec<Cluster> = case["items"].as_array().expect("items").iter().map(cluster).collect();
            label(&mut clusters);
            let labels: Vec<&str> = clusters.iter().map(|cluster| cluster.label.as_str()).collect();
            let expected: Vec<&str> = case["labels"].as_array().expect("labels").iter().filter_map(Value::as_str).collect();
            assert_eq!(labels, expected, "{}", case["what"]);
        }
    }
}
