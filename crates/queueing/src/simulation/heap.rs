//! A heap of what ends when: the least first.

/// Adds an entry.
pub(super) fn push<T: Copy>(heap: &mut Vec<(f64, T)>, entry: (f64, T)) {
    let mut at = heap.len();
    heap.push(entry);
    while at > 0 {
        let parent = (at - 1) / 2;
        if heap[parent].0 <= entry.0 {
            break;
        }
        heap[at] = heap[parent];
        at = parent;
    }
    heap[at] = entry;
}

/// Takes the least out.
pub(super) fn pop<T: Copy>(heap: &mut Vec<(f64, T)>) -> Option<(f64, T)> {
    let last = heap.pop()?;
    let Some(&first) = heap.first() else { return Some(last) };
    replace_first(heap, last);
    Some(first)
}

/// Puts an entry in the place of the least; there must be one.
#[inline]
pub(super) fn replace_first<T: Copy>(heap: &mut [(f64, T)], entry: (f64, T)) {
    let mut at = 0;
    loop {
        let mut child = 2 * at + 1;
        if child >= heap.len() {
            break;
        }
        if child + 1 < heap.len() && heap[child + 1].0 < heap[child].0 {
            child += 1;
        }
        if entry.0 <= heap[child].0 {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = entry;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_comes_first_whatever_was_pushed_popped_and_replaced() {
        let mut heap = Vec::new();
        let mut plain: Vec<u32> = Vec::new();
        let mut state = 1_u32;
        for round in 0..5_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = state >> 20;
            match state % 5 {
                0 => {
                    let least = plain.iter().copied().min();
                    assert_eq!(pop(&mut heap).map(|(_, own)| own), least, "round {round}");
                    plain.retain(|v| Some(*v) != least);
                }
                1 if !heap.is_empty() && !plain.contains(&value) => {
                    let least = plain.iter().copied().min();
                    replace_first(&mut heap, (f64::from(value), value));
                    plain.retain(|v| Some(*v) != least);
                    plain.push(value);
                }
                _ if !plain.contains(&value) => {
                    push(&mut heap, (f64::from(value), value));
                    plain.push(value);
                }
                _ => {}
            }
            assert_eq!(heap.len(), plain.len());
        }
        assert!(plain.len() > 100);
    }
}
