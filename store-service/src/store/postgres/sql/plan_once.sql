-- plan_once: each statement of this connection is planned once, without its values.
--
-- Left to itself, the server plans a claim anew for every execution: with the values of its arrays
-- it expects one row where it expects ten without them, and thinks that worth the planning, which
-- takes longer than the claim. All that is left to choose here is an index, and that is the same
-- for every value. Not sent through a transaction-mode pooler.
SET plan_cache_mode = force_generic_plan
