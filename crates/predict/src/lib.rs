//! From measurement to model: model inputs, predictions, and their error against what was held out.
