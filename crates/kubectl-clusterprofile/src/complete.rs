//! Completion through kubectl, which runs `kubectl_complete-clusterprofile` with the words after `clusterprofile`, of
//! which it completes the last. The output is one candidate in each line, with its description after a tab, and then a
//! directive of cobra, the library that kubectl reads command lines with.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::time::Duration;

use clap::{Arg, Command, ValueHint};
use clusterprofile_cli::args::split_place;
use clusterprofile_cli::complete::{Names, names};

use crate::{Cli, hub};

/// How long the hub may take, since the shell blocks until candidates are printed.
const LIMIT: Duration = Duration::from_secs(5);

/// `ShellCompDirectiveDefault`: the shell completes files if there is no candidate.
const FILES: u8 = 0;
/// `ShellCompDirectiveNoFileComp`.
const NO_FILES: u8 = 4;

/// What the last word can be.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// One of these, with their descriptions.
    Known(BTreeMap<String, String>),
    /// A name on the hub, printed after this beginning of the word.
    OnHub(String, Names),
    File,
    Nothing,
}

/// Prints what completes the last word. A hub that cannot be reached has no candidates: a prompt has no place for
/// errors.
pub(crate) async fn complete(words: &[String]) -> String {
    let mut command = Cli::command_line();
    command.build();
    let (last, before) = words.split_last().map_or(("", words), |(last, before)| (last.as_str(), before));
    let line = Line::read(&command, before);
    let mut candidates = BTreeMap::new();
    let mut directive = NO_FILES;
    match line.wanted(last) {
        Wanted::Known(known) => candidates = known,
        Wanted::OnHub(beginning, wanted) => {
            for name in on_hub(&line.options_of_hub(&command), &wanted).await {
                candidates.insert(format!("{beginning}{name}"), String::new());
            }
        }
        Wanted::File => directive = FILES,
        Wanted::Nothing => {}
    }
    // Of `--option=value`, only the value is completed.
    let last = assignment(last).map_or(last, |(_, value)| value);
    let mut output = String::new();
    for (candidate, description) in candidates.iter().filter(|(candidate, _)| candidate.starts_with(last)) {
        let separator = if description.is_empty() { "" } else { "\t" };
        let _ = writeln!(output, "{candidate}{separator}{description}");
    }
    let _ = writeln!(output, ":{directive}");
    output
}

/// The name and the value of `--option=value`.
fn assignment(word: &str) -> Option<(&str, &str)> {
    word.strip_prefix("--")?.split_once('=')
}

async fn on_hub(options: &[String], wanted: &Names) -> Vec<String> {
    let program = ["kubectl-clusterprofile".to_owned()];
    let command = ["list".to_owned()];
    let arguments = program.iter().chain(options).chain(&command).map(OsString::from);
    let names = async {
        let cli = Cli::read(arguments).ok()?;
        let hub = hub(&cli.hub).await.ok()?;
        names(&hub, wanted).await.ok()
    };
    tokio::time::timeout(LIMIT, names).await.ok().flatten().into_iter().flatten().collect()
}

/// The words before the last one.
struct Line<'a> {
    /// The command so far.
    command: &'a Command,
    is_command_named: bool,
    /// The options that have values, in the order of the line.
    options: Vec<(&'a Arg, String)>,
    names: Vec<String>,
    /// The option whose value the last word is.
    pending: Option<&'a Arg>,
}

impl<'a> Line<'a> {
    fn read(root: &'a Command, words: &[String]) -> Self {
        let mut line = Self {
            command: root,
            is_command_named: false,
            options: Vec::new(),
            names: Vec::new(),
            pending: None,
        };
        for word in words {
            line.add(word);
        }
        line
    }

    fn add(&mut self, word: &str) {
        if let Some(option) = self.pending.take() {
            self.options.push((option, word.to_owned()));
        } else if let Some(text) = word.strip_prefix("--") {
            let (name, value) =
                text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
            self.add_option(self.option(name), value);
        } else if let Some(letters) = word.strip_prefix('-') {
            let mut letters = letters.chars();
            let option = letters.next().and_then(|letter| self.short(letter));
            let value = letters.as_str();
            self.add_option(option, Some(value).filter(|value| !value.is_empty()));
        } else if let (false, Some(command)) = (self.is_command_named, self.command.find_subcommand(word)) {
            self.command = command;
            self.is_command_named = true;
        } else {
            self.names.push(word.to_owned());
        }
    }

    fn add_option(&mut self, option: Option<&'a Arg>, value: Option<&str>) {
        let Some(option) = option.filter(|option| option.get_action().takes_values()) else { return };
        match value {
            Some(value) => self.options.push((option, value.to_owned())),
            None if option.is_require_equals_set() => {}
            None => self.pending = Some(option),
        }
    }

    fn option(&self, name: &str) -> Option<&'a Arg> {
        self.command.get_arguments().find(|argument| argument.get_long() == Some(name))
    }

    fn short(&self, letter: char) -> Option<&'a Arg> {
        self.command.get_arguments().find(|argument| argument.get_short() == Some(letter))
    }

    /// What the last word can be.
    fn wanted(&self, last: &str) -> Wanted {
        if let Some(option) = self.pending {
            return self.value(option);
        }
        if let Some((name, _)) = assignment(last) {
            return self.option(name).map_or(Wanted::Nothing, |option| self.value(option));
        }
        if last.starts_with('-') {
            return Wanted::Known(self.long_options());
        }
        if !self.is_command_named {
            return Wanted::Known(self.commands());
        }
        self.positional(last)
    }

    fn long_options(&self) -> BTreeMap<String, String> {
        let visible = self.command.get_arguments().filter(|option| !option.is_hide_set());
        let named = visible.filter_map(|option| Some((option.get_long()?, option)));
        named.map(|(name, option)| (format!("--{name}"), first_line(option.get_help()))).collect()
    }

    fn commands(&self) -> BTreeMap<String, String> {
        let visible = self.command.get_subcommands().filter(|command| !command.is_hide_set());
        visible.map(|command| (command.get_name().to_owned(), first_line(command.get_about()))).collect()
    }

    fn positional(&self, last: &str) -> Wanted {
        let Some(positional) = self.command.get_positionals().next() else { return Wanted::Nothing };
        if positional.get_id() != "names" {
            return if self.names.is_empty() { self.value(positional) } else { Wanted::Nothing };
        }
        if let ([], Some((first, _))) = (&*self.names, last.split_once('/')) {
            return Wanted::OnHub(format!("{first}/"), Names::Clusters(Some(first.to_owned())));
        }
        let wanted = match (&*self.names, self.named("namespace")) {
            ([], None) => Names::Namespaces,
            ([], Some(namespace)) => Names::Clusters(Some(namespace)),
            ([first], None) if !first.contains('/') => Names::Clusters(Some(first.clone())),
            _ => return Wanted::Nothing,
        };
        Wanted::OnHub(String::new(), wanted)
    }

    /// What the value of an argument can be.
    fn value(&self, argument: &Arg) -> Wanted {
        let wanted = match argument.get_id().as_str() {
            "namespace" => Names::Namespaces,
            "managed_cluster" => Names::Clusters(self.place().0),
            "account" => {
                let (namespace, cluster) = self.place();
                Names::Accounts { namespace, cluster }
            }
            _ => {
                let possible = argument.get_possible_values();
                let possible = possible.iter().filter(|value| !value.is_hide_set());
                let known: BTreeMap<_, _> = possible
                    .map(|value| (value.get_name().to_owned(), first_line(value.get_help())))
                    .collect();
                return match argument.get_value_hint() {
                    _ if !known.is_empty() => Wanted::Known(known),
                    ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath => Wanted::File,
                    _ => Wanted::Nothing,
                };
            }
        };
        Wanted::OnHub(String::new(), wanted)
    }

    fn named(&self, id: &str) -> Option<String> {
        let option = self.options.iter().rfind(|(option, _)| option.get_id() == id);
        option.map(|(_, value)| value.clone())
    }

    /// The namespace and the cluster, as far as the words name them.
    fn place(&self) -> (Option<String>, Option<String>) {
        let option = self.named("namespace");
        let (namespace, cluster) = split_place(&self.names, option.is_some());
        let cluster = cluster.map(str::to_owned).or_else(|| self.named("managed_cluster"));
        (namespace.map(str::to_owned).or(option), cluster)
    }

    /// The options, as words, by which the hub is reached.
    fn options_of_hub(&self, root: &Command) -> Vec<String> {
        let is_of_hub = |option: &&Arg| {
            let id = option.get_id();
            id != "namespace" && root.get_arguments().any(|argument| argument.get_id() == id)
        };
        let options = self.options.iter().filter(|(option, _)| is_of_hub(option));
        options.filter_map(|(option, value)| Some(format!("--{}={value}", option.get_long()?))).collect()
    }
}

fn first_line(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What completes the last of words that are separated by spaces.
    fn wanted(words: &str) -> Wanted {
        let mut command = Cli::command_line();
        command.build();
        let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
        let (last, before) = words.split_last().unwrap();
        Line::read(&command, before).wanted(last)
    }

    fn clusters(namespace: &str) -> Names {
        Names::Clusters(Some(namespace.to_owned()))
    }

    fn accounts(namespace: &str, cluster: &str) -> Names {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Names::Accounts { namespace: given(namespace), cluster: given(cluster) }
    }

    #[test]
    fn every_form_of_a_namespace_a_cluster_and_an_account_is_completed() {
        for (words, beginning, names) in [
            ("list ", "", Names::Namespaces),
            ("list te", "", Names::Namespaces),
            ("list -n ", "", Names::Namespaces),
            ("--namespace=", "", Names::Namespaces),
            ("--context dev explain ", "", Names::Namespaces),
            ("explain team/", "team/", clusters("team")),
            ("explain team/be", "team/", clusters("team")),
            ("explain team ", "", clusters("team")),
            ("test -n team ", "", clusters("team")),
            ("-nteam test ", "", clusters("team")),
            ("explain --namespace=team be", "", clusters("team")),
            ("explain -c ", "", Names::Clusters(None)),
            ("explain -n team --managed-cluster=", "", clusters("team")),
            ("test team/berlin --account ", "", accounts("team", "berlin")),
            ("kubeconfig team --account=", "", accounts("team", "")),
            ("test --account ", "", accounts("", "")),
            ("explain -n team -c berlin --account a", "", accounts("team", "berlin")),
            ("kubeconfig -n team berlin --output json --account ", "", accounts("team", "berlin")),
        ] {
            assert_eq!(wanted(words), Wanted::OnHub(beginning.to_owned(), names), "{words:?}");
        }
    }

    #[test]
    fn what_the_command_line_knows_is_completed_without_the_hub() {
        let known = |words: &str| match wanted(words) {
            Wanted::Known(known) => known,
            other => panic!("{words:?}: {other:?}"),
        };
        let commands = known("");
        assert!(commands["explain"].starts_with("Print why"), "{commands:?}");
        assert!(!commands.contains_key("complete"), "{commands:?}");
        assert!(known("explain --").contains_key("--managed-cluster"));
        assert!(known("explain --").contains_key("--context"), "options of kubectl");
        assert!(!known("test --").contains_key("--in-pod"), "hidden");
        assert!(known("list -o ").contains_key("name"));
        assert!(known("list --output=").contains_key("wide"));
        for words in
            ["list team berlin ", "explain team/berlin ", "list -l ", "list --gone=", "-n team list b "]
        {
            assert_eq!(wanted(words), Wanted::Nothing, "{words:?}");
        }
        for words in ["list --kubeconfig ", "test --hub-kubeconfig="] {
            assert_eq!(wanted(words), Wanted::File, "{words:?}");
        }
    }

    #[test]
    fn the_hub_of_the_line_is_asked() {
        let mut command = Cli::command_line();
        command.build();
        let words =
            ["--context", "dev", "-n", "team", "explain", "--as=me", "--as-group", "a", "--account=b"];
        let line = Line::read(&command, &words.map(str::to_owned));
        assert_eq!(line.options_of_hub(&command), ["--context=dev", "--as=me", "--as-group=a"]);
    }
}
