//! Things with small numbers, which are used again.

/// A vector with holes.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, item: T) -> usize {
        if let Some(index) = self.free.pop() {
            self.items[index] = Some(item);
            return index;
        }
        self.items.push(Some(item));
        self.items.len() - 1
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        let item = self.items.get_mut(index)?.take();
        if item.is_some() {
            self.free.push(index);
        }
        item
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.items.get(index)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.items.get_mut(index)?.as_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    pub(crate) fn indices(&self) -> Vec<usize> {
        (0..self.items.len()).filter(|index| self.items[*index].is_some()).collect()
    }
}
