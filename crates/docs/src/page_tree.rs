//! A persistent vector of pages: clones share all pages, and a change copies one page and the path to it.

use std::sync::Arc;

/// Bits of a page number that one level of the tree consumes.
const LEVEL_BITS: u32 = 5;
/// Children of a node.
const FANOUT: usize = 1 << LEVEL_BITS;

/// Pages by number, counted from 0. A clone costs one reference count; afterwards the first change of a page
/// through either side copies that page and its nodes (32 references each), and later ones change in place
/// until the next clone.
#[derive(Debug, Clone)]
pub(crate) struct PageTree<P> {
    root: Arc<Node<P>>,
    /// Position of the bits of a page number that select a child of the root.
    shift: u32,
    len: usize,
}

#[derive(Debug, Clone)]
enum Node<P> {
    Inner([Option<Arc<Node<P>>>; FANOUT]),
    Pages([Option<Arc<P>>; FANOUT]),
}

impl<P> Node<P> {
    fn inner() -> Self {
        Self::Inner([const { None }; FANOUT])
    }

    fn pages() -> Self {
        Self::Pages([const { None }; FANOUT])
    }
}

impl<P: Clone> PageTree<P> {
    pub fn new() -> Self {
        Self { root: Arc::new(Node::pages()), shift: 0, len: 0 }
    }

    /// Returns the number of pages.
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn get(&self, at: usize) -> Option<&P> {
        if at >= self.len {
            return None;
        }
        let (mut node, mut shift) = (&*self.root, self.shift);
        loop {
            let child = (at >> shift) % FANOUT;
            match node {
                Node::Inner(children) => node = children[child].as_deref()?,
                Node::Pages(pages) => return pages[child].as_deref(),
            }
            shift -= LEVEL_BITS;
        }
    }

    /// Returns the page for a change; a page that a clone shares is copied first.
    #[inline]
    pub fn get_mut(&mut self, at: usize) -> Option<&mut P> {
        if at >= self.len {
            return None;
        }
        self.slot(at).as_mut().map(Arc::make_mut)
    }

    pub fn push(&mut self, page: P) {
        if self.len == FANOUT << self.shift {
            let mut root = [const { None }; FANOUT];
            root[0] = Some(std::mem::replace(&mut self.root, Arc::new(Node::pages())));
            self.root = Arc::new(Node::Inner(root));
            self.shift += LEVEL_BITS;
        }
        *self.slot(self.len) = Some(Arc::new(page));
        self.len += 1;
    }

    /// Iterates over the pages in order.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &P> {
        (0..self.len).filter_map(|at| self.get(at))
    }

    /// Returns the place of a page, with the nodes above it unshared.
    fn slot(&mut self, at: usize) -> &mut Option<Arc<P>> {
        let (mut node, mut shift) = (Arc::make_mut(&mut self.root), self.shift);
        loop {
            let child = (at >> shift) % FANOUT;
            match node {
                Node::Inner(children) => {
                    shift -= LEVEL_BITS;
                    let below = children[child].get_or_insert_with(|| {
                        Arc::new(if shift == 0 { Node::pages() } else { Node::inner() })
                    });
                    node = Arc::make_mut(below);
                }
                Node::Pages(pages) => return &mut pages[child],
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_over_several_levels() {
        let mut tree = PageTree::new();
        for n in 0..40_000 {
            tree.push(n);
        }
        assert!(tree.iter().copied().eq(0..40_000));
        assert_eq!(tree.get(40_000), None);
        assert_eq!(tree.get_mut(40_000), None);
    }

    #[test]
    fn a_clone_keeps_its_contents() {
        let mut tree = PageTree::new();
        (0..2000).for_each(|n| tree.push(n));
        let before = tree.clone();
        for at in (0..2000).step_by(7) {
            *tree.get_mut(at).expect("a page") = -1;
        }
        tree.push(2000);
        assert!(before.iter().copied().eq(0..2000));
        assert_eq!((before.len(), tree.len()), (2000, 2001));
        assert!(
            tree.iter()
                .enumerate()
                .all(|(at, n)| *n == if at < 2000 && at % 7 == 0 { -1 } else { at as i32 })
        );
    }
}
