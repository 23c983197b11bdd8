//! The report as a page that needs no other file.
use fedeq_core::Result;

use super::figures::{PagePart, part};
use super::table::ReportTable;
use super::{Availability, ClientDetail, MethodLine, Report, RunRecord, configuration, summary};
use crate::figure::{Figure, STYLE};
use crate::html::{escaped, prose};

const LAYOUT: &str = include_str!("page.css");

/// The whole page.
pub(super) fn page(report: &Report) -> Result<String> {
    let title = escaped(&report.title);
    let sections = [
        overview(report)?,
        section("Clients", &clients(report)?),
        section("Training and consensus", &pictures(&part(report, PagePart::Consensus))?),
        section("What clients sent", &sent(report)?),
        section("Equilibrium solver", &pictures(&part(report, PagePart::Solver))?),
        section("Time and memory", &pictures(&part(report, PagePart::Cost))?),
        section("Configuration", &configuration(report)?),
        section("How to do it again", &again(report)),
    ];
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}{LAYOUT}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n{}</main>\n</body>\n</html>\n",
        sections.concat()
    ))
}

/// A part of the page; nothing if there is nothing in it.
fn section(title: &str, content: &str) -> String {
    if content.is_empty() { String::new() } else { format!("<section>\n<h2>{title}</h2>\n{content}</section>\n") }
}

fn overview(report: &Report) -> Result<String> {
    let words: String = report.words.iter().map(|words| format!("<p>{}</p>\n", prose(words))).collect();
    let unseen = summary::unseen(report)
        .map_or(String::new(), |table| format!("<h3>Unseen clients: not part of training</h3>\n{}", table.html()));
    Ok([
        notice(&summary::unfinished(report)),
        words,
        summary::overview(report)?.html(),
        format!("<p class=\"aside\">{}</p>\n", escaped(&summary::legend(report))),
        list(&summary::contrasts(report)),
        list(&summary::privacy(report)),
        list(&summary::attacks(report)),
        unseen,
        pictures(&part(report, PagePart::Accuracy))?,
    ]
    .concat())
}

fn list(sentences: &[String]) -> String {
    let items: String = sentences.iter().map(|sentence| format!("<li>{}</li>\n", prose(sentence))).collect();
    if items.is_empty() { items } else { format!("<ul>\n{items}</ul>\n") }
}

fn notice(sentences: &[String]) -> String {
    if sentences.is_empty() { String::new() } else { format!("<div class=\"notice\">\n{}</div>\n", list(sentences)) }
}

fn pictures(figures: &[Figure]) -> Result<String> {
    let figures = figures.iter().map(Figure::html).collect::<Result<String>>()?;
    Ok(if figures.is_empty() { figures } else { format!("<div class=\"figures\">\n{figures}</div>\n") })
}

fn clients(report: &Report) -> Result<String> {
    let worst: String =
        report.lines.iter().zip(&report.client_details).map(|(line, client_detail)| worst(line, client_detail)).collect();
    let spread = pictures(&part(report, PagePart::Clients))?;
    Ok(format!("{spread}<h3>Least accurate clients</h3>\n<div class=\"figures clients\">\n{worst}</div>\n"))
}

/// How far updates were apart, and whose were far from the others.
fn sent(report: &Report) -> Result<String> {
    let table =
        |(line, table): (&MethodLine, ReportTable)| format!("<div>\n<h4>{}</h4>\n{}</div>\n", escaped(&line.name), table.html());
    let tables: String = summary::distances(report).into_iter().map(table).collect();
    let pictures = pictures(&part(report, PagePart::Aggregation))?;
    if tables.is_empty() {
        return Ok(pictures);
    }
    let about = escaped(summary::ABOUT_OUTLIERS);
    Ok(format!(
        "{pictures}<h3>Clients that are far from the others most often</h3>\n<p class=\"aside\">{about}</p>\n<div class=\"figures clients\">\n{tables}</div>\n"
    ))
}

fn worst(line: &MethodLine, client_detail: &Availability<ClientDetail>) -> String {
    let name = escaped(&line.name);
    match client_detail {
        Availability::Available(client_detail) if client_detail.worst.is_empty() => {
            format!("<p>{name}: no client has been evaluated yet.</p>\n")
        }
        Availability::Available(client_detail) => {
            let (run, view, table) =
                (escaped(&client_detail.run), client_detail.view.name(), summary::worst(client_detail).html());
            format!("<div>\n<h4>{name}, run {run}, {view} models</h4>\n{table}{}</div>\n", without_confusion(client_detail))
        }
        Availability::Missing(problem) => format!(
            "<p>{name}: clients' names, labels and confusion matrix are left out: {}. <code>fedeq report --data DIR</code> says where the data is.</p>\n",
            prose(problem)
        ),
    }
}

fn without_confusion(client_detail: &ClientDetail) -> String {
    match &client_detail.confusion {
        Availability::Available(_) => String::new(),
        Availability::Missing(problem) => {
            format!("<p class=\"aside\">The confusion matrix is not shown: {}.</p>\n", escaped(problem))
        }
    }
}

fn configuration(report: &Report) -> Result<String> {
    let differences = configuration::differences(report)?
        .map_or(String::new(), |table| format!("<p>What the experiments differ in:</p>\n{}", table.html()));
    let whole = report.runs.iter().map(experiment).collect::<Result<String>>()?;
    Ok(differences + &whole)
}

fn experiment(run: &RunRecord) -> Result<String> {
    let (name, toml) = (escaped(&run.name()), escaped(&run.experiment.to_toml()?));
    Ok(format!("<details>\n<summary>{name}: every setting</summary>\n<pre>{toml}</pre>\n</details>\n"))
}

fn again(report: &Report) -> String {
    format!(
        "<p>Carried out by {}. The same experiment, version and seed give the same numbers, whatever the number of cores.</p>\n<pre>{}</pre>\n\
         <p>Each file <code>experiment.toml</code> holds what is shown above under Configuration.</p>\n",
        escaped(&configuration::programs(report)),
        escaped(&configuration::commands(report))
    )
}
