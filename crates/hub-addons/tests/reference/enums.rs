//! The tables of enums: the texts are the comments of the variants, or what programs print.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};

use clusterprofile_cli::Conclusion;
use hub_core::access::Withheld;
use hub_core::credential::report::{INVALID_ENTRIES, INVALID_NAMESPACE};
use hub_core::credential::state::State;
use hub_core::entry::RefusalReason;
use hub_core::explain::{Code, Step};
use hub_core::finding::Reason;
use hub_core::grant::Verdict;
use hub_runtime::write::error::Category;
use strum::{EnumMessage, EnumProperty as _, IntoEnumIterator as _, VariantArray as _};

use super::page::rows;
use super::table::{code, compare, sentence};

/// The text of a variant as a cell.
fn text(variant: impl Debug, text: &str) -> String {
    // Instead of a text that is missing, strum prints the name of the variant.
    assert!(text.contains(' '), "{variant:?} has no text");
    sentence(text)
}

/// The comment of a variant as a cell.
fn comment(variant: &(impl EnumMessage + Debug)) -> String {
    text(variant, variant.get_documentation().unwrap_or_default())
}

#[test]
fn every_reason_of_an_event_is_listed() {
    let row = |reason: &Reason| {
        let object = reason.get_str("object").unwrap_or_else(|| panic!("{reason:?} has no object"));
        vec![code(reason.into_str()), object.to_owned(), comment(reason)]
    };
    compare("Event reasons", &Reason::ALL.iter().map(row).collect::<Vec<_>>());
}

#[test]
fn every_step_of_explain_is_listed() {
    let row = |step: &Step| vec![code(&format!("{step:?}")), comment(step)];
    compare("Steps of explain", &Step::ALL.iter().map(row).collect::<Vec<_>>());
}

/// The findings of the projector that are about a profile or its cluster.
const OF_PROFILES: [Reason; 8] = [
    Reason::ForeignProfile,
    Reason::ProfileTerminating,
    Reason::MemberIdChanged,
    Reason::MemberIdShared,
    Reason::UnlabelledProfile,
    Reason::NameTooLong,
    Reason::Unreadable,
    Reason::TooManyAccessProviders,
];

/// What a variant means: its comment or, if that would not say more, its text.
fn meaning(variant: &(impl EnumMessage + Display)) -> String {
    variant.get_documentation().map_or_else(|| variant.to_string(), str::to_owned)
}

/// What has happened, by the comment of a reason.
fn summary(reason: Reason) -> String {
    let comment = reason.get_documentation().and_then(|text| text.split("\n\n").next());
    comment.unwrap_or_default().to_owned()
}

/// Every code with its meaning: more than once if several enums have it.
fn codes() -> Vec<(String, String)> {
    let name = |code: &Code| code.as_str().to_owned();
    let own = Code::iter().map(|code| (name(&code), meaning(&code)));
    let grants =
        Verdict::all().map(|verdict| (name(&Code::Grant(verdict.clone())), verdict.to_string()));
    let withheld = |why: &Withheld| (name(&Code::Withheld(*why)), meaning(why));
    let is_described = |why: &&Withheld| why.get_documentation().is_some();
    let (described, others): (Vec<_>, Vec<_>) = Withheld::ALL.iter().partition(is_described);
    // If such a code is the reason of an Event, it means the same.
    let of_events = grants.chain(others.into_iter().map(withheld)).map(|(code, text)| {
        let reason = Reason::ALL.iter().find(|reason| reason.into_str() == code);
        (code, reason.map_or(text, |reason| summary(*reason)))
    });
    let profiles = OF_PROFILES.map(|reason| (reason.into_str().to_owned(), summary(reason)));
    let states = State::all().map(|state| (state.into_str().to_owned(), meaning(&state)));
    own.chain(described.into_iter().map(withheld))
        .chain(of_events)
        .chain(profiles)
        .chain(states)
        .chain([(INVALID_NAMESPACE.to_owned(), INVALID_ENTRIES.to_owned())])
        .collect()
}

#[test]
fn every_code_of_explain_is_listed() {
    let mut listed: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for (code, meaning) in codes() {
        let meaning = text(&code, &meaning);
        let meanings = listed.entry(code).or_default();
        if !meanings.contains(&meaning) {
            meanings.push(meaning);
        }
    }
    let row = |(name, mut meanings): (String, Vec<String>)| {
        let event = Reason::ALL.iter().find(|reason| reason.into_str() == name).map(comment);
        // The text of an Event begins with what has happened.
        let is_of_event = |text: &str| event.as_ref().is_some_and(|event| event.starts_with(text));
        if let Some(same) = meanings.iter_mut().find(|text| is_of_event(text)) {
            "As the [Event](#event-reasons).".clone_into(same);
        }
        vec![code(&name), meanings.join(" ")]
    };
    compare("Codes of explain", &listed.into_iter().map(row).collect::<Vec<_>>());
}

#[test]
fn every_value_of_a_label_of_metrics_is_listed() {
    let row = |category: &Category| vec![code(category.as_str()), comment(category)];
    compare("Categories", &Category::ALL.iter().map(row).collect::<Vec<_>>());
    let row = |why: &Withheld| vec![code(why.into_str()), code(Code::Withheld(*why).as_str())];
    compare("States of access providers", &Withheld::ALL.iter().map(row).collect::<Vec<_>>());
    let row = |reason: &RefusalReason| vec![code(reason.into_str()), comment(reason)];
    compare("Refused requests", &RefusalReason::ALL.iter().map(row).collect::<Vec<_>>());
}

/// So the page need not list them.
#[test]
fn states_of_credentials_and_reasons_of_the_condition_are_codes() {
    let codes: BTreeSet<_> = codes().into_iter().map(|(code, _)| code).collect();
    assert!(State::all().all(|state| codes.contains(state.into_str())));
    let of_words =
        |state: State| state.as_str().split('_').map(sentence).collect::<String>().replace('.', "");
    State::counted().for_each(|state| assert_eq!(of_words(state), state.into_str()));
}

/// Programs show the status of a command that cannot be carried out: see `names`.
#[test]
fn every_conclusion_is_listed_by_its_exit_status() {
    let heading = "Exit statuses of list, request, explain, report, test and kubeconfig";
    let row = |it: &Conclusion| vec![code(&it.exit_status().to_string()), comment(it)];
    let of_errors = rows(heading).into_iter().filter(|row| row[0] == "`2`");
    let mut expected: Vec<_> = Conclusion::VARIANTS.iter().map(row).chain(of_errors).collect();
    expected.sort();
    compare(heading, &expected);
}
