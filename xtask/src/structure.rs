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

/// Statistics of a crate.
#[derive(Debug, Default)]
pub struct Crate {
    pub name: String,
    pub lines: usize,
    /// Number of top-level modules; `public_modules` counts those of them that are public.
    pub modules: usize,
    pub public_modules: usize,
    /// Modules of each import cycle, the largest cycle first.
    pub circles: Vec<Vec<String>>,
    pub docs: usize,
    pub short_docs: usize,
    /// Names of structs, enums, traits and type aliases.
    pub types: Vec<String>,
}

/// Reads all crates below `crates`, ordered by name.
pub fn read(crates: &Path) -> Result<Vec<Crate>> {
    let entries = std::fs::read_dir(crates).with_context(|| crates.display().to_string())?;
    let mut dirs: Vec<PathBuf> = entries.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    dirs.sort();
    dirs.iter().map(|dir| read_crate(dir)).collect()
}

/// Returns a message for each crate whose import cycles are larger than allowed.
pub fn problems(crates: &[Crate]) -> Vec<String> {
    let circles = crates.iter().filter_map(|c| Some((c, c.circles.first()?)));
    circles
        .filter(|(_, circle)| circle.len() > CIRCLE_MAX)
        .map(|(c, circle)| {
            format!(
                "crates/{}: {} modules import each other in a circle: {}. Move what they share into a module of its own",
                c.name,
                circle.len(),
                circle.join(", ")
            )
        })
        .collect()
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
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for name in crates.iter().flat_map(|c| &c.types) {
        *names.entry(name).or_default() += 1;
    }
    let often = names.values().filter(|n| **n > 2).count();
    let total: usize = names.values().sum();
    text + &format!("{total} types have {} names; {often} names are defined more than twice\n", names.len())
}

fn read_crate(dir: &Path) -> Result<Crate> {
    let src = dir.join("src");
    let files = files(&src, "rs")?;
    let name = dir.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
    let mut counted = Crate { name, ..Crate::default() };
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
    let root = parsed.iter().find(|(path, _)| path.is_empty()).map(|(_, tree)| tree);
    let mut modules = BTreeSet::new();
    let mut exports = BTreeMap::new();
    for item in root.into_iter().flat_map(|tree| &tree.items) {
        match item {
            syn::Item::Mod(module) if !is_test(&module.attrs) => {
                modules.insert(module.ident.to_string());
                counted.public_modules += usize::from(matches!(module.vis, syn::Visibility::Public(_)));
            }
            syn::Item::Use(item) => exported(&item.tree, &mut Vec::new(), &mut exports),
            _ => {}
        }
    }
    counted.modules = modules.len();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, tree) in &parsed {
        let Some(own) = path.first() else { continue };
        // unit tests in a file of their own may use the whole crate
        if path.last().is_some_and(|last| last == "tests") {
            continue;
        }
        let mut uses = Uses {
            path: path.clone(),
            modules: &modules,
            exports: &exports,
            found: BTreeSet::new(),
            types: vec![],
        };
        uses.visit_file(tree);
        uses.found.remove(own);
        edges.entry(own.clone()).or_default().extend(uses.found);
        counted.types.append(&mut uses.types);
    }
    counted.circles = circles(&modules, &edges);
    Ok(counted)
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

/// Records in `exports` the top-level module of each item that the root re-exports.
fn exported(tree: &syn::UseTree, prefix: &mut Vec<String>, exports: &mut BTreeMap<String, String>) {
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            exported(&path.tree, prefix, exports);
            prefix.pop();
        }
        syn::UseTree::Group(group) => group.items.iter().for_each(|item| exported(item, prefix, exports)),
        syn::UseTree::Name(name) => {
            if let Some(module) = prefix.iter().find(|p| *p != "crate" && *p != "self") {
                exports.insert(name.ident.to_string(), module.clone());
            }
        }
        syn::UseTree::Rename(rename) => {
            if let Some(module) = prefix.iter().find(|p| *p != "crate" && *p != "self") {
                exports.insert(rename.rename.to_string(), module.clone());
            }
        }
        syn::UseTree::Glob(_) => {}
    }
}

/// Visitor that collects the top-level modules that a file uses, and the names of its types.
struct Uses<'a> {
    path: Vec<String>,
    modules: &'a BTreeSet<String>,
    exports: &'a BTreeMap<String, String>,
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
                other => {
                    at.push(other.to_owned());
                    break;
                }
            }
        }
        let Some(first) = at.first() else { return };
        if self.modules.contains(first) {
            self.found.insert(first.clone());
        } else if let Some(module) = self.exports.get(first) {
            self.found.insert(module.clone());
        }
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
    fn paths_lead_to_top_level_modules() {
        let modules = ["inner", "other", "third"].map(str::to_owned).into();
        let exports = [("Exported".to_owned(), "third".to_owned())].into();
        let path = vec!["inner".to_owned(), "deep".to_owned()];
        let mut uses =
            Uses { path, modules: &modules, exports: &exports, found: BTreeSet::new(), types: vec![] };
        let text = "use super::sibling::X; use super::super::other::{Y, z}; fn f(e: crate::Exported) {} \
            #[cfg(test)] mod tests { use crate::nothing::N; }";
        uses.visit_file(&syn::parse_file(text).unwrap());
        assert_eq!(uses.found, ["inner", "other", "third"].map(str::to_owned).into());
    }
}
