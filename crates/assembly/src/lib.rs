//! From an unordered list of members to one verdict each and an array, or a refusal.
