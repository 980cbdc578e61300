-- Records a schema version. ?1 version, ?2 now.
INSERT INTO migrations (version, applied_at) VALUES (?1, ?2)
