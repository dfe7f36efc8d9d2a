//! Structure of the crates, read from their source: import cycles between modules, type names, doc comments.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::visit::Visit;

use crate::files::files;

/// Maximum number of modules in an import cycle of a crate. Two modules may depend on each other;
/// three that do are one module in three files.
const CIRCLE_MAX: usize = 2;

/// Length in characters below which a line of a doc comment seldom adds information to the name.
const DOC_SHORT: usize = 28;

/// Maximum number of files directly in a folder of a crate's source, subfolders not counted.
const FOLDER_MAX: usize = 20;

/// Maximum number of type names that have more than two definitions in the whole tree.
const REPEATED_NAMES_MAX: usize = 40;

/// Statistics of a crate.
#[derive(Debug, Default)]
pub struct Crate {
    pub name: String,
    pub lines: usize,
    /// Number of modules at the top level and in groups; `public_modules` counts those at the top level that
    /// are public.
    pub modules: usize,
    pub public_modules: usize,
    /// Modules of each import cycle, the largest cycle first.
    pub circles: Vec<Vec<String>>,
    /// Folders with more than [`FOLDER_MAX`] files, relative to the crate's source, with their numbers of files.
    pub full_folders: Vec<(PathBuf, usize)>,
    pub docs: usize,
    pub short_docs: usize,
    /// Names of structs, enums, traits and type aliases; associated types repeat the name of their trait.
    pub types: Vec<String>,
}

/// Reads all crates below `crates`, ordered by name.
pub fn read(crates: &Path) -> Result<Vec<Crate>> {
    let entries = std::fs::read_dir(crates).with_context(|| crates.display().to_string())?;
    let mut dirs: Vec<PathBuf> = entries.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    dirs.sort();
    dirs.iter().map(|dir| read_crate(dir)).collect()
}

/// Returns a message for each import cycle and each folder that is larger than allowed, and one if too many
/// type names are repeated.
pub fn problems(crates: &[Crate]) -> Vec<String> {
    let mut problems = Vec::new();
    for c in crates {
        if let Some(circle) = c.circles.first().filter(|circle| circle.len() > CIRCLE_MAX) {
            problems.push(format!(
                "crates/{}: {} modules import each other in a circle: {}. Move what they share into a module of its own",
                c.name,
                circle.len(),
                circle.join(", ")
            ));
        }
        problems.extend(c.full_folders.iter().map(|(folder, files)| {
            format!(
                "crates/{}/src/{}: {files} files in one folder; at most {FOLDER_MAX} are allowed. Group those of one subject \
                 in a folder of their own",
                c.name,
                folder.display()
            )
        }));
    }
    let repeated = repeated_names(crates);
    if repeated.len() > REPEATED_NAMES_MAX {
        problems.push(format!(
            "{} type names have more than two definitions; at most {REPEATED_NAMES_MAX} are allowed: {}",
            repeated.len(),
            repeated.iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
        ));
    }
    problems
}

/// Returns the type names with more than two definitions, with the number of their definitions.
fn repeated_names(crates: &[Crate]) -> Vec<(&str, usize)> {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for name in crates.iter().flat_map(|c| &c.types) {
        *names.entry(name).or_default() += 1;
    }
    names.into_iter().filter(|(_, n)| *n > 2).collect()
}

/// Formats the table that `cargo xtask structure` prints.
pub fn table(crates: &[Crate]) -> String {
    let mut text = format!(
        "{:<10} {:>7} {:>8} {:>7} {:>15} {:>6} {:>9}\n",
        "crate", "lines", "modules", "public", "largest circle", "docs", "short"
    );
    for c in crates {
        text += &format!(
            "{:<10} {:>7} {:>8} {:>7} {:>15} {:>6} {:>9}\n",
            c.name,
            c.lines,
            c.modules,
            c.public_modules,
            c.circles.first().map_or(0, Vec::len),
            c.docs,
            c.short_docs
        );
    }
    let total: usize = crates.iter().map(|c| c.types.len()).sum();
    let repeated = repeated_names(crates);
    text += &format!("{total} types; {} of their names have more than two definitions:\n", repeated.len());
    for (name, n) in &repeated {
        text += &format!("  {n:>2} {name}\n");
    }
    text
}

fn read_crate(dir: &Path) -> Result<Crate> {
    let src = dir.join("src");
    let files = files(&src, "rs")?;
    let name = dir.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
    let mut counted = Crate { name, full_folders: full_folders(&src, &files), ..Crate::default() };
    let mut parsed = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        counted.lines += text.lines().count();
        for doc in text.lines().filter_map(|line| line.trim_start().strip_prefix("/// ")) {
            counted.docs += 1;
            counted.short_docs += usize::from(doc.chars().count() < DOC_SHORT);
        }
        let tree = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        parsed.push((module_path(&src, file), tree));
    }
    let tree_of = |name: &[String]| parsed.iter().find(|(path, _)| path == name).map(|(_, tree)| tree);
    let mut modules = Modules::default();
    for item in tree_of(&[]).into_iter().flat_map(|tree| &tree.items) {
        match item {
            syn::Item::Mod(module) if !is_test(&module.attrs) => {
                let name = module.ident.to_string();
                counted.public_modules += usize::from(matches!(module.vis, syn::Visibility::Public(_)));
                let members = tree_of(std::slice::from_ref(&name)).map_or_else(Vec::new, group_members);
                counted.modules += members.len().max(1);
                if members.is_empty() {
                    modules.names.insert(name);
                } else {
                    modules.names.extend(members.iter().map(|member| format!("{name}::{member}")));
                    modules.groups.insert(name);
                }
            }
            syn::Item::Use(item) => exported(&item.tree, &mut Vec::new(), &mut modules.exports),
            _ => {}
        }
    }
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, tree) in &parsed {
        let Some(own) = modules.module_of(path) else { continue };
        // unit tests in a file of their own may use the whole crate
        if path.last().is_some_and(|last| last == "tests") {
            continue;
        }
        let mut uses = Uses { path: path.clone(), modules: &modules, found: BTreeSet::new(), types: vec![] };
        uses.visit_file(tree);
        uses.found.remove(&own);
        edges.entry(own).or_default().extend(uses.found);
        counted.types.append(&mut uses.types);
    }
    counted.circles = circles(&modules.names, &edges);
    Ok(counted)
}

/// Returns the folders below `src` that have more than [`FOLDER_MAX`] of `files`.
fn full_folders(src: &Path, files: &[PathBuf]) -> Vec<(PathBuf, usize)> {
    let mut folders: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for folder in files.iter().filter_map(|file| file.strip_prefix(src).unwrap_or(file).parent()) {
        *folders.entry(folder.to_owned()).or_default() += 1;
    }
    folders.into_iter().filter(|(_, files)| *files > FOLDER_MAX).collect()
}

/// Returns the module path of `file`: `src/a/b.rs` and `src/a/b/mod.rs` are `[a, b]`; `lib.rs` and `main.rs`
/// are the root.
fn module_path(src: &Path, file: &Path) -> Vec<String> {
    let relative = file.strip_prefix(src).unwrap_or(file).with_extension("");
    let mut path: Vec<String> = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        path.pop();
    }
    path
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("cfg") && a.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
    })
}

/// Returns the modules that the file of a group declares; none if the file has anything else, and so is a module
/// itself.
fn group_members(tree: &syn::File) -> Vec<String> {
    let members = tree.items.iter().map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() => Some(module.ident.to_string()),
        _ => None,
    });
    members.collect::<Option<_>>().unwrap_or_default()
}

/// Modules of a crate between which imports are followed: those at the top level, or the members of a group. A
/// group is a folder whose own file only declares modules.
#[derive(Default)]
struct Modules {
    /// `a`, or `group::a`.
    names: BTreeSet<String>,
    groups: BTreeSet<String>,
    /// Path of the module of each item that the root re-exports.
    exports: BTreeMap<String, Vec<String>>,
}

impl Modules {
    /// Returns the module that contains the item at `path`; `None` for the root, a group itself, or an item of
    /// another crate.
    fn module_of(&self, path: &[String]) -> Option<String> {
        let first = path.first()?;
        let name =
            if self.groups.contains(first) { format!("{first}::{}", path.get(1)?) } else { first.clone() };
        self.names.contains(&name).then_some(name)
    }
}

/// Records in `exports` the path of the module of each item that the root re-exports.
fn exported(tree: &syn::UseTree, prefix: &mut Vec<String>, exports: &mut BTreeMap<String, Vec<String>>) {
    let module = |prefix: &[String]| -> Vec<String> {
        prefix.iter().filter(|part| *part != "crate" && *part != "self").cloned().collect()
    };
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            exported(&path.tree, prefix, exports);
            prefix.pop();
        }
        syn::UseTree::Group(group) => group.items.iter().for_each(|item| exported(item, prefix, exports)),
        // the name may be that of a module in a group
        syn::UseTree::Name(name) => {
            let mut path = module(prefix);
            path.push(name.ident.to_string());
            exports.insert(name.ident.to_string(), path);
        }
        syn::UseTree::Rename(rename) => {
            let mut path = module(prefix);
            path.push(rename.ident.to_string());
            exports.insert(rename.rename.to_string(), path);
        }
        syn::UseTree::Glob(_) => {}
    }
}

/// Visitor that collects the modules that a file uses, and the names of its types.
struct Uses<'a> {
    path: Vec<String>,
    modules: &'a Modules,
    found: BTreeSet<String>,
    types: Vec<String>,
}

impl Uses<'_> {
    fn resolve(&mut self, segments: &[String]) {
        let mut at = match segments.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("super") => self.path.clone(),
            _ => return,
        };
        for segment in segments {
            match segment.as_str() {
                "crate" => {}
                "super" => drop(at.pop()),
                other => at.push(other.to_owned()),
            }
        }
        let module = self.modules.module_of(&at).or_else(|| {
            let path = self.modules.exports.get(at.first()?)?;
            self.modules.module_of(path)
        });
        self.found.extend(module);
    }

    fn resolve_tree(&mut self, tree: &syn::UseTree, prefix: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.resolve_tree(&path.tree, prefix);
                prefix.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.resolve_tree(item, prefix)),
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                prefix.push(ident.to_string());
                self.resolve(prefix);
                prefix.pop();
            }
            syn::UseTree::Glob(_) => self.resolve(prefix),
        }
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.resolve_tree(&item.tree, &mut Vec::new());
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if is_test(&module.attrs) {
            return;
        }
        self.path.push(module.ident.to_string());
        syn::visit::visit_item_mod(self, module);
        self.path.pop();
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.resolve(&segments);
        syn::visit::visit_path(self, path);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.types.push(item.ident.to_string());
        syn::visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.types.push(item.ident.to_string());
        syn::visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.types.push(item.ident.to_string());
        syn::visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.types.push(item.ident.to_string());
        syn::visit::visit_item_type(self, item);
    }
}

/// Returns the strongly connected components of the import graph with several modules, the largest first.
fn circles(modules: &BTreeSet<String>, edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reachable = |from: &str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(module) = next.pop() {
            for to in edges.get(&module).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    next.push(to.clone());
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&String, BTreeSet<String>> = modules.iter().map(|m| (m, reachable(m))).collect();
    let mut circles: Vec<Vec<String>> = Vec::new();
    for module in modules.iter().filter(|m| reach[m].contains(*m)) {
        if circles.iter().any(|circle| circle.contains(module)) {
            continue;
        }
        let back = |other: &&String| reach[module].contains(*other) && reach[other].contains(module);
        circles.push(modules.iter().filter(back).cloned().collect());
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_that_reach_each_other_are_a_circle() {
        let edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "d")];
        let mut map: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in edges {
            map.entry(from.to_owned()).or_default().insert(to.to_owned());
        }
        let modules = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
        assert_eq!(circles(&modules, &map), [["a", "b", "c"]]);
    }

    #[test]
    fn folders_with_too_many_files_are_full() {
        let src = Path::new("src");
        let files: Vec<PathBuf> = (0..=FOLDER_MAX).map(|i| src.join(format!("a/{i}.rs"))).collect();
        assert_eq!(full_folders(src, &files), [(PathBuf::from("a"), FOLDER_MAX + 1)]);
        assert_eq!(full_folders(src, &files[1..]), []);
    }

    #[test]
    fn paths_lead_to_top_level_modules_and_members_of_groups() {
        let modules = Modules {
            names: ["inner", "other", "third", "group::one"].map(str::to_owned).into(),
            groups: ["group".to_owned()].into(),
            exports: [("Exported".to_owned(), vec!["third".to_owned(), "Exported".to_owned()])].into(),
        };
        let path = vec!["inner".to_owned(), "deep".to_owned()];
        let mut uses = Uses { path, modules: &modules, found: BTreeSet::new(), types: vec![] };
        let text = "use super::sibling::X; use super::super::other::{Y, z}; fn f(e: crate::Exported) {} \
            use crate::group::{one::Z, two}; \
            #[cfg(test)] mod tests { use crate::nothing::N; }";
        uses.visit_file(&syn::parse_file(text).unwrap());
        assert_eq!(uses.found, ["group::one", "inner", "other", "third"].map(str::to_owned).into());
    }
}
