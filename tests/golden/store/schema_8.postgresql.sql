-- A store of schema version 8, as pg_dump dumped it. Written by the code of that version; never edit it.
CREATE TABLE kafka_replication_alembic_version (
    version_num character varying(32) NOT NULL
);

CREATE TABLE kafka_replication_alerts (
    replication character varying NOT NULL,
    kind character varying NOT NULL,
    subject character varying NOT NULL,
    since bigint NOT NULL,
    last_seen bigint NOT NULL,
    announced_at bigint,
    claimed_until bigint,
    document text NOT NULL
);

CREATE TABLE kafka_replication_boundaries (
    replication character varying NOT NULL,
    source_topic character varying NOT NULL,
    source_partition integer NOT NULL,
    source_topic_id character varying NOT NULL,
    "time" bigint NOT NULL,
    next_offset bigint NOT NULL
);

CREATE TABLE kafka_replication_failed_records (
    replication character varying NOT NULL,
    source_topic character varying NOT NULL,
    source_partition integer NOT NULL,
    target_topic character varying NOT NULL,
    generation integer NOT NULL,
    source_offset bigint NOT NULL,
    kind character varying NOT NULL,
    state character varying NOT NULL,
    size bigint NOT NULL,
    key_digest character varying NOT NULL,
    digest character varying NOT NULL,
    reason text NOT NULL,
    error character varying NOT NULL,
    place_topic character varying,
    place_partition integer,
    place_offset bigint,
    history text NOT NULL,
    updated_at bigint NOT NULL
);

CREATE TABLE kafka_replication_leases (
    replication character varying NOT NULL,
    owner character varying NOT NULL,
    held boolean NOT NULL,
    acquired_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    token bigint NOT NULL,
    holder character varying
);

CREATE TABLE kafka_replication_past_alerts (
    replication character varying NOT NULL,
    ended_at bigint NOT NULL,
    kind character varying NOT NULL,
    subject character varying NOT NULL,
    since bigint NOT NULL,
    what text NOT NULL,
    remedy text NOT NULL
);

CREATE TABLE kafka_replication_range_outcomes (
    run_id character varying NOT NULL,
    replication character varying NOT NULL,
    source_topic character varying NOT NULL,
    source_partition integer NOT NULL,
    target_topic character varying NOT NULL,
    from_offset bigint NOT NULL,
    until_offset bigint NOT NULL,
    copied bigint NOT NULL,
    not_visible bigint NOT NULL,
    digest_ok boolean,
    level character varying NOT NULL,
    watermark bigint,
    error text,
    remedy text,
    seconds double precision NOT NULL,
    bytes bigint NOT NULL,
    recorded_at bigint NOT NULL,
    verified_at bigint
);

CREATE TABLE kafka_replication_runs (
    sequence integer NOT NULL,
    run_id character varying NOT NULL,
    replication character varying NOT NULL,
    kind character varying NOT NULL,
    state character varying NOT NULL,
    plan text NOT NULL,
    created_at bigint NOT NULL,
    finished_at bigint,
    progress text,
    expected_until bigint
);

CREATE SEQUENCE kafka_replication_runs_sequence_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE kafka_replication_runs_sequence_seq OWNED BY kafka_replication_runs.sequence;

CREATE TABLE kafka_replication_samples (
    replication character varying NOT NULL,
    span bigint NOT NULL,
    at bigint NOT NULL,
    run_id character varying NOT NULL,
    lag_records bigint,
    lag_seconds double precision,
    records bigint NOT NULL,
    bytes bigint NOT NULL,
    seconds double precision NOT NULL
);

CREATE TABLE kafka_replication_schema (
    version integer NOT NULL
);

CREATE TABLE kafka_replication_standings (
    replication character varying NOT NULL,
    facts text NOT NULL,
    work text,
    measured_at bigint,
    partition_count integer NOT NULL,
    lag_records bigint,
    lag_seconds double precision,
    partitions text
);

CREATE TABLE kafka_replication_target_leases (
    replication character varying NOT NULL,
    owner character varying NOT NULL,
    holder character varying,
    waiting boolean NOT NULL,
    topics text NOT NULL,
    process text,
    acquired_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    token bigint NOT NULL
);

CREATE TABLE kafka_replication_totals (
    replication character varying NOT NULL,
    name character varying NOT NULL,
    kind character varying NOT NULL,
    outcome character varying NOT NULL,
    value double precision NOT NULL
);

CREATE TABLE kafka_replication_watermark_history (
    replication character varying NOT NULL,
    source_topic character varying NOT NULL,
    source_partition integer NOT NULL,
    target_topic character varying NOT NULL,
    generation integer NOT NULL,
    source_topic_id character varying NOT NULL,
    target_topic_id character varying NOT NULL,
    next_offset bigint NOT NULL,
    version bigint NOT NULL,
    updated_at bigint NOT NULL,
    run_id character varying NOT NULL
);

CREATE TABLE kafka_replication_watermarks (
    replication character varying NOT NULL,
    source_topic character varying NOT NULL,
    source_partition integer NOT NULL,
    target_topic character varying NOT NULL,
    generation integer NOT NULL,
    source_topic_id character varying NOT NULL,
    target_topic_id character varying NOT NULL,
    next_offset bigint NOT NULL,
    version bigint NOT NULL,
    updated_at bigint NOT NULL,
    run_id character varying NOT NULL
);

ALTER TABLE ONLY kafka_replication_runs ALTER COLUMN sequence SET DEFAULT nextval('kafka_replication_runs_sequence_seq'::regclass);

INSERT INTO kafka_replication_alembic_version VALUES ('0008');

INSERT INTO kafka_replication_alerts VALUES ('orders-dr', 'settled', '', 1795598708239, 1795598708239, NULL, NULL, '{}');

INSERT INTO kafka_replication_boundaries VALUES ('orders-dr', 'orders', 0, 'SrcTopicIdAAAAAAAAAAAA', 1795327200000, 100);
INSERT INTO kafka_replication_boundaries VALUES ('orders-dr', 'orders', 1, 'SrcTopicIdAAAAAAAAAAAA', 1795327200000, 30);
INSERT INTO kafka_replication_boundaries VALUES ('orders-dr', 'orders', 0, 'SrcTopicIdAAAAAAAAAAAA', 1795328100000, 240);
INSERT INTO kafka_replication_boundaries VALUES ('orders-dr', 'orders', 1, 'SrcTopicIdAAAAAAAAAAAA', 1795328100000, 44);

INSERT INTO kafka_replication_leases VALUES ('orders-dr', 'airflow-orders-dr-scheduled__2026-11-22T06:30:00+00:00', false, 1795373454727, 1795459854727, 1, NULL);
INSERT INTO kafka_replication_leases VALUES ('given-back', 'cli-host-2', false, 1795373454748, 1795373514748, 1, NULL);

INSERT INTO kafka_replication_past_alerts VALUES ('orders-dr', 1795598708294, 'lag', 'orders', 1795598708183, 'it is far behind', 'give it more slots');

INSERT INTO kafka_replication_range_outcomes VALUES ('airflow-orders-dr-scheduled__2026-11-22T06:00:00+00:00', 'orders-dr', 'orders', 0, 'dr.orders', 0, 120, 118, 2, true, 'digest', 120, NULL, NULL, 1.25, 118000, 1795373454568, 1795373454568);
INSERT INTO kafka_replication_range_outcomes VALUES ('airflow-orders-dr-scheduled__2026-11-22T06:00:00+00:00', 'orders-dr', 'orders', 1, 'dr.orders', 5, 40, 35, 0, true, 'digest', 40, NULL, NULL, 1.25, 35000, 1795373454587, 1795373454587);
INSERT INTO kafka_replication_range_outcomes VALUES ('airflow-orders-dr-scheduled__2026-11-22T06:15:00+00:00', 'orders-dr', 'orders', 0, 'dr.orders', 120, 300, 180, 0, true, 'digest', 300, NULL, NULL, 2.5, 180000, 1795373454639, 1795373454639);
INSERT INTO kafka_replication_range_outcomes VALUES ('airflow-orders-dr-scheduled__2026-11-22T06:15:00+00:00', 'orders-dr', 'orders', 1, 'dr.orders', 40, 90, 0, 0, NULL, 'digest', 40, 'retention overran [40, 55)', 'approve the gap', 0, 0, 1795373454651, NULL);
INSERT INTO kafka_replication_range_outcomes VALUES ('airflow-orders-dr-scheduled__2026-11-22T06:30:00+00:00', 'orders-dr', 'orders', 0, 'dr.orders', 300, 480, 0, 0, NULL, '', NULL, 'the worker was killed', 'run again', 0.5, 99, 1795373454715, NULL);

INSERT INTO kafka_replication_runs VALUES (1, 'airflow-orders-dr-scheduled__2026-11-22T06:00:00+00:00', 'orders-dr', 'live', 'done', '{"format": 1, "replication": "orders-dr", "partitions": [{"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 0}, "target_topic": "dr.orders"}, "state": "behind", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 1, "start": 0, "position": 0, "source_end": 120, "watermark": null, "copy": [0, 120], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}, {"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 1}, "target_topic": "dr.orders"}, "state": "behind", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 1, "start": 5, "position": 5, "source_end": 40, "watermark": null, "copy": [5, 40], "verify": [], "leader_epoch": 3, "what": "", "remedy": ""}]}', 1795373454533, 1795373454598, NULL, NULL);
INSERT INTO kafka_replication_runs VALUES (2, 'airflow-orders-dr-scheduled__2026-11-22T06:15:00+00:00', 'orders-dr', 'live', 'failed', '{"format": 1, "replication": "orders-dr", "partitions": [{"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 0}, "target_topic": "dr.orders"}, "state": "behind", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 1, "start": 0, "position": 120, "source_end": 300, "watermark": 120, "copy": [120, 300], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}, {"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 1}, "target_topic": "dr.orders"}, "state": "retention overran", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 1, "start": 5, "position": 40, "source_end": 90, "watermark": 40, "copy": null, "verify": [], "leader_epoch": null, "what": "retention overran [40, 55)", "remedy": "approve the gap"}]}', 1795373454612, 1795373454664, NULL, NULL);
INSERT INTO kafka_replication_runs VALUES (3, 'cli-backfill-1', 'orders-dr', 'backfill', 'nothing_to_do', '{"format": 1, "replication": "orders-dr", "partitions": [{"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 0}, "target_topic": "restored.orders"}, "state": "behind", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 1, "start": 0, "position": 0, "source_end": 50, "watermark": null, "copy": [0, 50], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}]}', 1795373454682, 1795373454696, NULL, NULL);
INSERT INTO kafka_replication_runs VALUES (4, 'airflow-orders-dr-scheduled__2026-11-22T06:30:00+00:00', 'orders-dr', 'live', 'planned', '{"format": 1, "replication": "orders-dr", "partitions": [{"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 0}, "target_topic": "dr.orders"}, "state": "behind", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 1, "start": 0, "position": 300, "source_end": 480, "watermark": 300, "copy": [300, 480], "verify": [[280, 300]], "leader_epoch": 7, "what": "", "remedy": ""}, {"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 2}, "target_topic": "dr.orders"}, "state": "behind", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 1, "start": 10, "position": 10, "source_end": 20, "watermark": null, "copy": [10, 20], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}, {"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 1}, "target_topic": "dr.orders"}, "state": "in sync", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 2, "start": 5, "position": 5, "source_end": 5, "watermark": 5, "copy": null, "verify": [], "leader_epoch": null, "what": "", "remedy": ""}]}', 1795373454706, NULL, NULL, NULL);

INSERT INTO kafka_replication_samples VALUES ('orders-dr', 60000, 1795598700000, 'airflow-orders-dr-scheduled__2026-11-22T06:00:00+00:00', NULL, NULL, 153, 4096, 2.5);
INSERT INTO kafka_replication_samples VALUES ('orders-dr', 60000, 1795598700000, '', 180, 12.5, 0, 0, 0);

INSERT INTO kafka_replication_schema VALUES (8);

INSERT INTO kafka_replication_standings VALUES ('orders-dr', '{"source":"kafka_source","target":"kafka_target","schedule":"*/15 * * * *","topics":["orders"],"by_interval":false,"dags":[".audit",".backfill",".failed"]}', '{"run_id":"airflow-orders-dr-scheduled__2026-11-22T06:00:00+00:00","records":153,"bytes":4096,"seconds":2.5,"at":"2026-11-25T09:25:08.096738Z"}', 1795598708126, 1, 180, 12.5, '[{"topic":"orders","partition":0,"target_topic":"dr.orders","state":"behind","lag":180,"lag_seconds":12.5}]');

INSERT INTO kafka_replication_totals VALUES ('orders-dr', 'records', '', '', 153);
INSERT INTO kafka_replication_totals VALUES ('orders-dr', 'bytes', '', '', 15300);
INSERT INTO kafka_replication_totals VALUES ('orders-dr', 'throttled_seconds', '', '', 0.25);
INSERT INTO kafka_replication_totals VALUES ('orders-dr', 'runs', 'live', 'done', 1);
INSERT INTO kafka_replication_totals VALUES ('orders-dr', 'ranges', '', 'verified', 2);

INSERT INTO kafka_replication_watermark_history VALUES ('orders-dr', 'orders', 0, 'dr.orders', 1, 'SrcTopicIdAAAAAAAAAAAA', 'TgtTopicIdAAAAAAAAAAAA', 120, 1, 1795373454547, 'airflow-orders-dr-scheduled__2026-11-22T06:00:00+00:00');
INSERT INTO kafka_replication_watermark_history VALUES ('orders-dr', 'orders', 1, 'dr.orders', 1, 'SrcTopicIdAAAAAAAAAAAA', 'TgtTopicIdAAAAAAAAAAAA', 40, 1, 1795373454558, 'airflow-orders-dr-scheduled__2026-11-22T06:00:00+00:00');
INSERT INTO kafka_replication_watermark_history VALUES ('orders-dr', 'orders', 0, 'dr.orders', 1, 'SrcTopicIdAAAAAAAAAAAA', 'TgtTopicIdAAAAAAAAAAAA', 300, 2, 1795373454624, 'airflow-orders-dr-scheduled__2026-11-22T06:15:00+00:00');
INSERT INTO kafka_replication_watermark_history VALUES ('orders-dr', 'orders', 1, 'dr.orders', 2, 'NewTopicIdAAAAAAAAAAAA', 'TgtTopicIdAAAAAAAAAAAA', 5, 2, 1795373454672, 'cli-host-1');
INSERT INTO kafka_replication_watermark_history VALUES ('orders-dr', 'orders', 0, 'restored.orders', 1, 'SrcTopicIdAAAAAAAAAAAA', 'TgtTopicIdAAAAAAAAAAAA', 4611686018427387904, 1, 1795373454689, 'cli-backfill-1');

INSERT INTO kafka_replication_watermarks VALUES ('orders-dr', 'orders', 0, 'dr.orders', 1, 'SrcTopicIdAAAAAAAAAAAA', 'TgtTopicIdAAAAAAAAAAAA', 300, 2, 1795373454624, 'airflow-orders-dr-scheduled__2026-11-22T06:15:00+00:00');
INSERT INTO kafka_replication_watermarks VALUES ('orders-dr', 'orders', 1, 'dr.orders', 2, 'NewTopicIdAAAAAAAAAAAA', 'TgtTopicIdAAAAAAAAAAAA', 5, 2, 1795373454672, 'cli-host-1');
INSERT INTO kafka_replication_watermarks VALUES ('orders-dr', 'orders', 0, 'restored.orders', 1, 'SrcTopicIdAAAAAAAAAAAA', 'TgtTopicIdAAAAAAAAAAAA', 4611686018427387904, 1, 1795373454689, 'cli-backfill-1');

ALTER TABLE ONLY kafka_replication_alembic_version
    ADD CONSTRAINT kafka_replication_alembic_version_pkc PRIMARY KEY (version_num);

ALTER TABLE ONLY kafka_replication_alerts
    ADD CONSTRAINT kafka_replication_alerts_pkey PRIMARY KEY (replication, kind, subject);

ALTER TABLE ONLY kafka_replication_boundaries
    ADD CONSTRAINT kafka_replication_boundaries_pkey PRIMARY KEY (replication, source_topic, source_partition, source_topic_id, "time");

ALTER TABLE ONLY kafka_replication_failed_records
    ADD CONSTRAINT kafka_replication_failed_records_pkey PRIMARY KEY (replication, source_topic, source_partition, target_topic, generation, source_offset);

ALTER TABLE ONLY kafka_replication_leases
    ADD CONSTRAINT kafka_replication_leases_pkey PRIMARY KEY (replication);

ALTER TABLE ONLY kafka_replication_past_alerts
    ADD CONSTRAINT kafka_replication_past_alerts_pkey PRIMARY KEY (replication, ended_at, kind, subject);

ALTER TABLE ONLY kafka_replication_range_outcomes
    ADD CONSTRAINT kafka_replication_range_outcomes_pkey PRIMARY KEY (run_id, replication, source_topic, source_partition, target_topic, from_offset, until_offset);

ALTER TABLE ONLY kafka_replication_runs
    ADD CONSTRAINT kafka_replication_runs_pkey PRIMARY KEY (sequence);

ALTER TABLE ONLY kafka_replication_runs
    ADD CONSTRAINT kafka_replication_runs_run_id_key UNIQUE (run_id);

ALTER TABLE ONLY kafka_replication_samples
    ADD CONSTRAINT kafka_replication_samples_pkey PRIMARY KEY (replication, span, at, run_id);

ALTER TABLE ONLY kafka_replication_schema
    ADD CONSTRAINT kafka_replication_schema_pkey PRIMARY KEY (version);

ALTER TABLE ONLY kafka_replication_standings
    ADD CONSTRAINT kafka_replication_standings_pkey PRIMARY KEY (replication);

ALTER TABLE ONLY kafka_replication_target_leases
    ADD CONSTRAINT kafka_replication_target_leases_pkey PRIMARY KEY (replication, owner);

ALTER TABLE ONLY kafka_replication_totals
    ADD CONSTRAINT kafka_replication_totals_pkey PRIMARY KEY (replication, name, kind, outcome);

ALTER TABLE ONLY kafka_replication_watermark_history
    ADD CONSTRAINT kafka_replication_watermark_history_pkey PRIMARY KEY (replication, source_topic, source_partition, target_topic, version);

ALTER TABLE ONLY kafka_replication_watermarks
    ADD CONSTRAINT kafka_replication_watermarks_pkey PRIMARY KEY (replication, source_topic, source_partition, target_topic);

CREATE INDEX kafka_replication_failed_records_state ON kafka_replication_failed_records USING btree (replication, state);

CREATE INDEX kafka_replication_range_outcomes_partition ON kafka_replication_range_outcomes USING btree (replication, source_topic, source_partition, target_topic, recorded_at);

CREATE INDEX kafka_replication_runs_age ON kafka_replication_runs USING btree (replication, created_at);

CREATE INDEX kafka_replication_runs_latest ON kafka_replication_runs USING btree (replication, sequence);

CREATE INDEX kafka_replication_runs_open ON kafka_replication_runs USING btree (replication, state);

CREATE INDEX kafka_replication_watermark_history_age ON kafka_replication_watermark_history USING btree (replication, updated_at);

ALTER TABLE ONLY kafka_replication_range_outcomes
    ADD CONSTRAINT kafka_replication_range_outcomes_run_id_fkey FOREIGN KEY (run_id) REFERENCES kafka_replication_runs(run_id);
