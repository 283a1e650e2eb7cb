//! Rule: a crate's files import in one direction, without circles.
//!
//! ```text
//! lib.rs ─ mod a; mod b; ─▶ modules, one for each file ─ paths in code ─▶ edges ─▶ circles
//! ```
//!
//! A path leads to the file that defines the name. A parent's re-export (`pub use child::Name`)
//! leads to the child, so parents are composition and make no circle; so does a call of a child by
//! its name (`child::run()`). A method in another file than its type is found by calls on a value
//! of the type's name (`core.drive(…)`, `self.drive(…)`).
//!
//! Test code is left out, and so are links that names do not show: trait objects, closures.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::source::{Source, block_end, word_after, words};
use super::tree::Tree;
use super::{Finding, Rule};

/// Permitted circles, each named by one of its files, and why.
const STAY: [(&str, &str); 1] = [(
    "crates/io/ring/src/worker.rs",
    "a handler is called with the worker, so that it can submit more; the worker keeps handlers until then",
)];

/// Types with methods in several files: a call of such a method imports the method's file.
const LAYERED: [&str; 1] = ["Core"];

/// A path in code, as its names.
type Names = Vec<String>;

/// A source file as a module of its crate.
struct Module<'a> {
    /// Path from the crate's root; empty for the root.
    names: Names,
    source: &'a Source,
    /// The file's code without tests.
    code: String,
    /// Inline modules of the file: their ranges and names.
    inline: Vec<(Range<usize>, String)>,
    uses: Vec<Use>,
    /// Modules that the file declares.
    children: Vec<String>,
}

/// One name that a `use` brings into the file.
struct Use {
    at: usize,
    names: Names,
    alias: String,
    is_handed_on: bool,
}

/// A method in another file than its type's definition.
struct Method {
    type_name: String,
    name: String,
    module: usize,
}

/// For each file, the files that it imports, and the offset of the first import.
type Edges = Vec<BTreeMap<usize, usize>>;

/// Finds circles of files in every crate, and permitted circles that no longer exist.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut staying = BTreeSet::new();
    for root in &tree.sources {
        let name = root.name();
        let is_root = name.ends_with("src/lib.rs") || name.ends_with("src/main.rs");
        if is_root {
            check_crate(tree, root, &mut staying, findings);
        }
    }
    for (file, reason) in STAY {
        if !staying.contains(file) && tree.sources.iter().any(|source| source.name() == file) {
            let text =
                format!("no circle of files here any more ({reason}): drop it from the list");
            findings.push(Finding::new(Rule::Circles, file, 1, text));
        }
    }
}

fn check_crate(
    tree: &Tree,
    root: &Source,
    staying: &mut BTreeSet<&'static str>,
    findings: &mut Vec<Finding>,
) {
    let modules = modules(tree, root);
    let edges = edges(&modules);
    let mut reported = BTreeSet::new();
    for start in 0..modules.len() {
        let Some(circle) = shortest_circle(&edges, start) else { continue };
        let files: Vec<String> =
            circle.iter().chain([&start]).map(|module| modules[*module].source.name()).collect();
        let stays = STAY.iter().find(|(file, _)| files.iter().any(|name| name == file));
        if let Some((file, _)) = stays {
            staying.insert(*file);
            continue;
        }
        if !circle.iter().any(|module| reported.contains(module)) {
            let line = modules[start].source.line_of(edges[start][&circle[1 % circle.len()]]);
            let text = format!("a circle of files: {}", files.join(" -> "));
            findings.push(Finding::new(Rule::Circles, &files[0], line, text));
        }
        reported.extend(circle);
    }
}

/// All files of a crate, found from the modules that its root declares; the root comes first.
fn modules<'a>(tree: &'a Tree, root: &'a Source) -> Vec<Module<'a>> {
    let folder = |source: &Source| {
        let name = source.name();
        let (folder, file) = name.rsplit_once('/').expect("a path has a folder");
        match file {
            "lib.rs" | "main.rs" | "mod.rs" => folder.to_string(),
            _ => name.trim_end_matches(".rs").to_string(),
        }
    };
    let mut modules = vec![Module::new(Vec::new(), root)];
    let mut at = 0;
    while at < modules.len() {
        let module = &modules[at];
        let folder = folder(module.source);
        let mut children = Vec::new();
        for (offset, _) in words(&module.code).filter(|&(_, word)| word == "mod") {
            let name = word_after(&module.code, offset + 3);
            let end = module.code[offset + 3..].trim_start()[name.len()..].trim_start();
            let paths = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
            let source = tree.sources.iter().find(|source| paths.contains(&source.name()));
            if let Some(source) = source.filter(|_| end.starts_with(';')) {
                let names = module.names.iter().cloned().chain([name.to_string()]).collect();
                children.push(Module::new(names, source));
            }
        }
        modules.extend(children);
        at += 1;
    }
    modules
}

impl<'a> Module<'a> {
    fn new(names: Names, source: &'a Source) -> Self {
        let mut module = Self {
            names,
            source,
            code: source.production_code(),
            inline: Vec::new(),
            uses: Vec::new(),
            children: Vec::new(),
        };
        let code = &module.code;
        for (at, _) in words(code).filter(|&(_, word)| word == "mod") {
            let name = word_after(code, at + 3);
            let open = at + code[at..].find(['{', ';']).unwrap_or(0);
            if let Some(end) = block_end(code, at).filter(|_| code[open..].starts_with('{')) {
                module.inline.push((at..end, name.to_string()));
            } else {
                module.children.push(name.to_string());
            }
        }
        let mut uses = Vec::new();
        for (at, _) in words(code).filter(|&(_, word)| word == "use") {
            let Some(length) = code[at..].find(';') else { continue };
            let before = code[..at].trim_end();
            let is_handed_on = before.ends_with("pub") || before.ends_with(')');
            let mut found = Vec::new();
            expand(&[], &code[at + 3..at + length], &mut found);
            for (names, alias) in found {
                if let Some(names) = module.absolute(at, names) {
                    uses.push(Use { at, names, alias, is_handed_on });
                }
            }
        }
        module.uses = uses;
        module
    }

    /// The module at an offset of the file, including inline modules.
    fn place(&self, at: usize) -> Names {
        let inside = self.inline.iter().filter(|(range, _)| range.contains(&at));
        self.names.iter().chain(inside.map(|(_, name)| name)).cloned().collect()
    }

    /// The path of a name, from the crate's root; `None` for a name of another crate.
    fn absolute(&self, at: usize, names: Names) -> Option<Names> {
        let mut base = self.place(at);
        let mut rest = names.as_slice();
        match rest.first()?.as_str() {
            "crate" => (base, rest) = (Vec::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            // Only a path that begins with a child's name counts; any other leads to no file.
            _ => {}
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }
}

/// The paths of a `use`, each with its local name.
fn expand(prefix: &[String], text: &str, found: &mut Vec<(Names, String)>) {
    let text = text.trim();
    let (head, group) = match text.split_once('{') {
        Some((head, group)) => (head, group.rsplit_once('}').map(|(inside, _)| inside)),
        None => (text, None),
    };
    let (head, alias) = head.split_once(" as ").unwrap_or((head, ""));
    let mut names = prefix.to_vec();
    names.extend(head.split("::").map(str::trim).filter(|name| !name.is_empty()).map(Into::into));
    let Some(group) = group else {
        if names.len() > 1 && names.last().is_some_and(|name| name == "self") {
            names.pop();
        }
        let last = names.last().cloned().unwrap_or_default();
        let alias = if alias.is_empty() { last } else { alias.trim().to_string() };
        return found.push((names, alias));
    };
    let (mut depth, mut from) = (0_usize, 0);
    for (at, letter) in group.char_indices().chain([(group.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !group[from..at].trim().is_empty() {
                    expand(&names, &group[from..at], found);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// Every path in the code outside of `use`: its offset and names.
fn paths(code: &str) -> Vec<(usize, Names)> {
    let mut found: Vec<(usize, Names)> = Vec::new();
    let mut end = 0;
    for (at, word) in words(code) {
        if code[..at].ends_with("::") && at == end + 2 && !found.is_empty() {
            found.last_mut().expect("there is one").1.push(word.to_string());
        } else {
            found.push((at, vec![word.to_string()]));
        }
        end = at + word.len();
    }
    found.retain(|(_, names)| names.len() > 1);
    found
}

fn edges(modules: &[Module<'_>]) -> Edges {
    let methods = methods(modules);
    modules
        .iter()
        .enumerate()
        .map(|(index, module)| {
            let mut edges = BTreeMap::new();
            let code = without_uses(&module.code);
            let mut note = |at: usize, names: &Names| {
                if let Some(target) = resolve(modules, names, 0).filter(|target| *target != index) {
                    edges.entry(target).or_insert(at);
                }
            };
            for one in &module.uses {
                // A re-export of a child is composition, not an import.
                let is_below = one.names.starts_with(&module.names);
                if !(one.is_handed_on && is_below) {
                    note(one.at, &one.names);
                }
            }
            for (at, names) in paths(&code) {
                let alias = module.uses.iter().find(|one| one.alias == names[0]);
                let names = match alias {
                    Some(one) => Some(one.names.iter().chain(&names[1..]).cloned().collect()),
                    None if !matches!(names[0].as_str(), "crate" | "super" | "self") => None,
                    None => module.absolute(at, names),
                };
                if let Some(names) = names {
                    note(at, &names);
                }
            }
            for method in methods.iter().filter(|method| method.module != index) {
                if let Some(at) = call(module, &code, method) {
                    edges.entry(method.module).or_insert(at);
                }
            }
            edges
        })
        .collect()
}

fn without_uses(code: &str) -> String {
    let mut bytes = code.to_string().into_bytes();
    for (at, _) in words(code).filter(|&(_, word)| word == "use") {
        let end = code[at..].find(';').map_or(at, |length| at + length);
        bytes[at..end].fill(b' ');
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The file that defines a name; `None` if no file of the crate defines it.
fn resolve(modules: &[Module<'_>], names: &Names, depth: usize) -> Option<usize> {
    let prefix = |module: &&Module<'_>| names.starts_with(&module.names);
    let longest = modules.iter().filter(prefix).map(|module| module.names.len()).max()?;
    let index = modules.iter().position(|module| module.names == names[..longest])?;
    let (module, rest) = (&modules[index], &names[longest..]);
    let Some(name) = rest.first() else { return Some(index) };
    let handed = module.uses.iter().find(|one| one.alias == *name && depth < 8);
    if let Some(one) = handed {
        let further = one.names.iter().chain(&rest[1..]).cloned().collect();
        return resolve(modules, &further, depth + 1);
    }
    // A child in another folder (`#[path]`) is shared between crates, and no crate's own file.
    (!module.children.contains(name) && defines(module, name)).then_some(index)
}

/// Whether a file contains a name: the file defines it, or one of its macros does.
fn defines(module: &Module<'_>, name: &str) -> bool {
    name == "*" || words(&module.code).any(|(_, word)| word == name)
}

/// Methods in another file than their type's definition.
fn methods(modules: &[Module<'_>]) -> Vec<Method> {
    let mut found = Vec::new();
    for (index, module) in modules.iter().enumerate() {
        let code = &module.code;
        for (at, type_name) in inherent_impls(code) {
            let is_elsewhere = LAYERED.contains(&type_name.as_str())
                && !defines_type(code, &type_name)
                && modules.iter().any(|other| defines_type(&other.code, &type_name));
            let end = block_end(code, at).filter(|_| is_elsewhere).unwrap_or(at);
            let block = &code[at..end];
            for (offset, _) in words(block).filter(|&(_, word)| word == "fn") {
                let name = word_after(block, offset + 2).to_string();
                found.push(Method { type_name: type_name.clone(), name, module: index });
            }
        }
    }
    found
}

/// Each inherent `impl`: its offset, and the type's name.
fn inherent_impls(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in words(code).filter(|&(_, word)| word == "impl") {
        let starts_line = code[..at].rsplit('\n').next().is_some_and(|line| line.trim().is_empty());
        let Some(length) = code[at..].find('{').filter(|_| starts_line) else { continue };
        let header = &code[at + 4..at + length];
        if words(header).any(|(_, word)| word == "for") {
            continue;
        }
        let header = header.trim_start();
        let generic = header.strip_prefix('<').and_then(|rest| rest.split_once('>'));
        let header = generic.map_or(header, |(_, rest)| rest);
        if let Some((_, name)) = words(header).next() {
            found.push((at, name.to_string()));
        }
    }
    found
}

fn defines_type(code: &str, name: &str) -> bool {
    words(code).any(|(at, word)| {
        matches!(word, "struct" | "enum" | "trait" | "union" | "type")
            && word_after(code, at + word.len()) == name
    })
}

/// The offset of a method's call, found by the name of the value.
fn call(module: &Module<'_>, code: &str, method: &Method) -> Option<usize> {
    let own = inherent_impls(&module.code).iter().any(|(_, name)| *name == method.type_name)
        || defines_type(&module.code, &method.type_name);
    let value = snake(&method.type_name);
    let dotted = format!(".{}", method.name);
    code.match_indices(&dotted).map(|(at, _)| at).find(|&at| {
        let after = code[at + dotted.len()..].chars().next();
        let before = code[..at].trim_end().trim_end_matches("()");
        let receiver = words(before).last().filter(|(at, word)| at + word.len() == before.len());
        let is_value = receiver.is_some_and(|(_, word)| word == value || (word == "self" && own));
        is_value && after == Some('(')
    })
}

/// The usual name of a value of this type: `ShardMemory` gives `shard_memory`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// The shortest chain of imports from a file back to itself.
fn shortest_circle(edges: &Edges, start: usize) -> Option<Vec<usize>> {
    let mut before: BTreeMap<usize, usize> = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(at) = next.pop_front() {
        for &target in edges[at].keys() {
            if target == start {
                let mut circle = vec![at];
                while *circle.last().expect("it is not empty") != start {
                    circle.push(before[circle.last().expect("it is not empty")]);
                }
                circle.reverse();
                return Some(circle);
            }
            if let Entry::Vacant(first) = before.entry(target) {
                first.insert(at);
                next.push_back(target);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings for a crate of these test files.
    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let source =
            |(path, text): &(&str, &str)| Source::new(format!("crates/x/src/{path}"), text);
        let tree = Tree { sources: files.iter().map(source).collect(), documents: Vec::new() };
        let mut findings = Vec::new();
        check(&tree, &mut findings);
        findings.iter().map(|one| one.text.replace("crates/x/src/", "")).collect()
    }

    const ROOT: (&str, &str) = ("lib.rs", "mod a;\nmod b;\n");
    const ROUND: [&str; 1] = ["a circle of files: a.rs -> b.rs -> a.rs"];

    #[test]
    fn files_that_import_each_other_are_found() {
        let b = ("b.rs", "use super::{c::D, a::{A, Other}};\npub struct B(A);\n");
        let a = ("a.rs", "use crate::b::B;\npub struct A;\n");
        assert_eq!(circles(&[ROOT, a, b]), ROUND);
        assert_eq!(circles(&[ROOT, a, ("b.rs", "pub struct B;\n")]), [""; 0]);
    }

    #[test]
    fn full_paths_are_no_way_round() {
        let a = ("a.rs", "pub struct A;\nfn f() { crate::b::g() }\n");
        let b = ("b.rs", "pub fn g() { let _ = super::a::A; }\n");
        assert_eq!(circles(&[ROOT, a, b]), ROUND);
    }

    #[test]
    fn a_parent_that_hands_on_is_no_way_round() {
        let root = ("lib.rs", "mod a;\nmod b;\npub use a::A;\nuse b::B as C;\n");
        let a = ("a.rs", "use crate::C;\npub struct A;\n");
        let b = ("b.rs", "use crate::A;\npub struct B;\n");
        assert_eq!(circles(&[root, a, b]), ROUND);
        let above = ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::B;\n");
        let below = ("b.rs", "pub struct B;\n");
        assert_eq!(circles(&[above, ("a.rs", "use crate::B;\npub struct A;\n"), below]), [""; 0]);
    }

    #[test]
    fn a_parent_that_imports_from_its_child_and_is_imported_by_it_is_found() {
        let root = ("lib.rs", "mod a;\nuse a::G;\npub struct Own(G);\n");
        let a = ("a.rs", "use crate::Own;\npub struct G;\n");
        assert_eq!(circles(&[root, a]), ["a circle of files: lib.rs -> a.rs -> lib.rs"]);
        let calls = ("lib.rs", "mod a;\npub struct Own;\nfn f() { a::g() }\n");
        assert_eq!(circles(&[calls, a]), [""; 0], "composition");
    }

    #[test]
    fn methods_in_another_file_than_their_type_are_found() {
        let a = ("a.rs", "pub struct Core;\nimpl Core { fn f(&self) { self.drive() } }\n");
        let b = ("b.rs", "use crate::a::Core;\nimpl Core { pub fn drive(&self) {} }\n");
        assert_eq!(circles(&[ROOT, a, b]), ROUND);
        let other = ("a.rs", "pub struct Core;\nfn f(car: &Car) { car.drive() }\n");
        assert_eq!(circles(&[ROOT, other, b]), [""; 0], "another type's");
    }

    #[test]
    fn a_circle_that_is_gone_leaves_the_list() {
        let source = |path: &str, text| Source::new(format!("crates/io/ring/src/{path}"), text);
        let found = |handler| {
            let root = source("lib.rs", "mod worker;\nmod handler;\n");
            let worker = source("worker.rs", "use crate::handler::Handler;\npub struct Worker;\n");
            let sources = vec![root, worker, source("handler.rs", handler)];
            let mut findings = Vec::new();
            check(&Tree { sources, documents: Vec::new() }, &mut findings);
            findings.len()
        };
        assert_eq!(found("use crate::worker::Worker;\npub trait Handler {}\n"), 0, "it stays");
        assert_eq!(found("pub trait Handler {}\n"), 1);
    }

    #[test]
    fn tests_and_modules_inside_a_file_may_look_up() {
        let a = ("a.rs", "pub struct A;\n#[cfg(test)]\nmod tests { use crate::b::B; }\n");
        let b = ("b.rs", "use crate::a::A;\npub struct B;\nmod inside { use super::B; }\n");
        assert_eq!(circles(&[ROOT, a, b]), [""; 0]);
        let tests = ("lib.rs", "mod a;\n#[cfg(test)]\nmod b;\n");
        let a = ("a.rs", "use crate::b::B;\npub struct A;\n");
        assert_eq!(circles(&[tests, a, b]), [""; 0], "a file that is there in tests only");
    }
}
