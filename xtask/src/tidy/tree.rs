//! The repository as tidy reads it: every Rust and Markdown file outside build outputs.
//!
//! `Tree` walks folders itself, so that it also checks a tree without git history.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::source::Source;

/// A text file that is not Rust.
pub(super) struct Document {
    /// Path relative to the repository root, with `/` between parts.
    pub(super) path: String,
    pub(super) text: String,
}

/// All files that tidy reads.
pub(super) struct Tree {
    /// Rust files, sorted by path.
    pub(super) sources: Vec<Source>,
    /// Markdown, TOML and licence files, sorted by path.
    pub(super) documents: Vec<Document>,
}

impl Tree {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self { sources: Vec::new(), documents: Vec::new() };
        for (path, text) in files(root)? {
            let relative = path.strip_prefix(root).unwrap_or(&path);
            if path.extension().is_some_and(|extension| extension == "rs") {
                tree.sources.push(Source::new(relative, &text));
            } else {
                let path = relative.to_string_lossy().replace('\\', "/");
                tree.documents.push(Document { path, text });
            }
        }
        Ok(tree)
    }

    pub(super) fn document(&self, path: &str) -> Option<&Document> {
        self.documents.iter().find(|document| document.path == path)
    }
}

/// The folder that holds the workspace.
pub(crate) fn repository_root() -> Result<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(own.parent().context("xtask stands one folder below the repository root")?.to_path_buf())
}

/// Every readable file below a folder, sorted by path, with its text.
pub(crate) fn files(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut paths = Vec::new();
    walk(folder, &mut paths)?;
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok((path, text))
    };
    paths.into_iter().map(read).collect()
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let skipped = ["target", ".git", "cache", "corpus", "artifacts", "node_modules"];
            if !skipped.contains(&name.as_str()) {
                walk(&path, paths)?;
            }
        } else if kind.is_file() && is_read(&name) {
            paths.push(path);
        }
    }
    Ok(())
}

fn is_read(name: &str) -> bool {
    [".rs", ".md", ".toml"].iter().any(|end| name.ends_with(end)) || name.starts_with("LICENSE")
}
