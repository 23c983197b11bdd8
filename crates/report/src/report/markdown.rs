//! The report as Markdown.
use std::path::Path;

use fedeq_core::Result;

use super::{Availability, ClientDetail, MethodLine, Report, configuration, figures, summary};
use crate::figure::Figure;

/// The whole text; with pictures if it is told in which folder they are, as seen from the text.
pub(super) fn text(report: &Report, pictures: Option<&Path>) -> Result<String> {
    let mut parts = vec![format!("# {}", report.title)];
    parts.extend(report.words.iter().cloned());
    parts.extend(bullets(&summary::unfinished(report)));
    parts.push(summary::overview(report)?.markdown());
    parts.push(summary::legend(report));
    parts.extend(bullets(&summary::contrasts(report)));
    parts.extend(bullets(&summary::privacy(report)));
    parts.extend(bullets(&summary::attacks(report)));
    parts.extend(summary::unseen(report).map(|table| format!("## Unseen clients: not part of training\n\n{}", table.markdown())));
    if let Some(folder) = pictures {
        parts.extend(figures::all(report).iter().map(|figure| picture(figure, folder)));
    }
    parts.push("## Least accurate clients".into());
    parts.extend(worst(report));
    let distances = summary::distances(report);
    if !distances.is_empty() {
        parts.push(format!("## Clients that are far from the others most often\n\n{}", summary::ABOUT_OUTLIERS));
        parts.extend(distances.into_iter().map(|(line, table)| format!("{}\n\n{}", line.name, table.markdown())));
    }
    parts.extend(
        configuration::differences(report)?.map(|table| format!("## Where the experiments differ\n\n{}", table.markdown())),
    );
    parts.push(format!(
        "## Again\n\nCarried out by {}.\n\n```sh\n{}```",
        configuration::programs(report),
        configuration::commands(report)
    ));
    Ok(parts.iter().map(|part| format!("{}\n", part.trim_end())).collect::<Vec<_>>().join("\n"))
}

fn bullets(sentences: &[String]) -> Option<String> {
    (!sentences.is_empty()).then(|| sentences.iter().map(|sentence| format!("- {sentence}\n")).collect())
}

fn picture(figure: &Figure, folder: &Path) -> String {
    let path = folder.join(format!("{}.svg", figure.name)).display().to_string().replace(' ', "%20");
    format!("![{}]({path})", figure.title.replace(['[', ']'], ""))
}

fn worst(report: &Report) -> Vec<String> {
    let part = |(line, client_detail): (&MethodLine, &Availability<ClientDetail>)| match client_detail {
        Availability::Available(client_detail) => {
            let view = client_detail.view.name();
            format!(
                "{} (run `{}`, evaluated by its {view} models)\n\n{}",
                line.name,
                client_detail.run,
                summary::worst(client_detail).markdown()
            )
        }
        Availability::Missing(problem) => format!("{}: left out, because the data is not available: {problem}", line.name),
    };
    report.lines.iter().zip(&report.client_details).map(part).collect()
}
