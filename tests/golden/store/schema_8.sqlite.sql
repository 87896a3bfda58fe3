-- A store of schema version 8, as SQLite dumped it. Written by the code of that version; never edit it.
BEGIN TRANSACTION;
CREATE TABLE kafka_replication_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT kafka_replication_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "kafka_replication_alembic_version" VALUES('0008');
CREATE TABLE kafka_replication_alerts (
	replication VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	since BIGINT NOT NULL, 
	last_seen BIGINT NOT NULL, 
	announced_at BIGINT, 
	claimed_until BIGINT, 
	document TEXT NOT NULL, 
	PRIMARY KEY (replication, kind, subject)
);
INSERT INTO "kafka_replication_alerts" VALUES('orders-dr','settled','',1795598704825,1795598704825,NULL,NULL,'{}');
CREATE TABLE kafka_replication_boundaries (
	replication VARCHAR NOT NULL, 
	source_topic VARCHAR NOT NULL, 
	source_partition INTEGER NOT NULL, 
	source_topic_id VARCHAR NOT NULL, 
	time BIGINT NOT NULL, 
	next_offset BIGINT NOT NULL, 
	PRIMARY KEY (replication, source_topic, source_partition, source_topic_id, time)
);
INSERT INTO "kafka_replication_boundaries" VALUES('orders-dr','orders',0,'SrcTopicIdAAAAAAAAAAAA',1795327200000,100);
INSERT INTO "kafka_replication_boundaries" VALUES('orders-dr','orders',1,'SrcTopicIdAAAAAAAAAAAA',1795327200000,30);
INSERT INTO "kafka_replication_boundaries" VALUES('orders-dr','orders',0,'SrcTopicIdAAAAAAAAAAAA',1795328100000,240);
INSERT INTO "kafka_replication_boundaries" VALUES('orders-dr','orders',1,'SrcTopicIdAAAAAAAAAAAA',1795328100000,44);
CREATE TABLE kafka_replication_failed_records (
	replication VARCHAR NOT NULL, 
	source_topic VARCHAR NOT NULL, 
	source_partition INTEGER NOT NULL, 
	target_topic VARCHAR NOT NULL, 
	generation INTEGER NOT NULL, 
	source_offset BIGINT NOT NULL, 
	kind VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	size BIGINT NOT NULL, 
	key_digest VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	reason TEXT NOT NULL, 
	error VARCHAR NOT NULL, 
	place_topic VARCHAR, 
	place_partition INTEGER, 
	place_offset BIGINT, 
	history TEXT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	PRIMARY KEY (replication, source_topic, source_partition, target_topic, generation, source_offset)
);
CREATE TABLE kafka_replication_leases (
	replication VARCHAR NOT NULL, 
	owner VARCHAR NOT NULL, 
	held BOOLEAN NOT NULL, 
	acquired_at BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	token BIGINT NOT NULL, holder VARCHAR, 
	PRIMARY KEY (replication)
);
INSERT INTO "kafka_replication_leases" VALUES('orders-dr','airflow-orders-dr-scheduled__2026-11-22T06:30:00+00:00',0,1795373452879,1795459852879,1,NULL);
INSERT INTO "kafka_replication_leases" VALUES('given-back','cli-host-2',0,1795373452881,1795373512881,1,NULL);
CREATE TABLE kafka_replication_past_alerts (
	replication VARCHAR NOT NULL, 
	ended_at BIGINT NOT NULL, 
	kind VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	since BIGINT NOT NULL, 
	what TEXT NOT NULL, 
	remedy TEXT NOT NULL, 
	PRIMARY KEY (replication, ended_at, kind, subject)
);
INSERT INTO "kafka_replication_past_alerts" VALUES('orders-dr',1795598704829,'lag','orders',1795598704815,'it is far behind','give it more slots');
CREATE TABLE kafka_replication_range_outcomes (
	run_id VARCHAR NOT NULL, 
	replication VARCHAR NOT NULL, 
	source_topic VARCHAR NOT NULL, 
	source_partition INTEGER NOT NULL, 
	target_topic VARCHAR NOT NULL, 
	from_offset BIGINT NOT NULL, 
	until_offset BIGINT NOT NULL, 
	copied BIGINT NOT NULL, 
	not_visible BIGINT NOT NULL, 
	digest_ok BOOLEAN, 
	level VARCHAR NOT NULL, 
	watermark BIGINT, 
	error TEXT, 
	remedy TEXT, 
	seconds FLOAT NOT NULL, 
	bytes BIGINT NOT NULL, 
	recorded_at BIGINT NOT NULL, 
	verified_at BIGINT, 
	PRIMARY KEY (run_id, replication, source_topic, source_partition, target_topic, from_offset, until_offset), 
	FOREIGN KEY(run_id) REFERENCES kafka_replication_runs (run_id)
);
INSERT INTO "kafka_replication_range_outcomes" VALUES('airflow-orders-dr-scheduled__2026-11-22T06:00:00+00:00','orders-dr','orders',0,'dr.orders',0,120,118,2,1,'digest',120,NULL,NULL,1.25,118000,1795373452817,1795373452817);
INSERT INTO "kafka_replication_range_outcomes" VALUES('airflow-orders-dr-scheduled__2026-11-22T06:00:00+00:00','orders-dr','orders',1,'dr.orders',5,40,35,0,1,'digest',40,NULL,NULL,1.25,35000,1795373452822,1795373452822);
INSERT INTO "kafka_replication_range_outcomes" VALUES('airflow-orders-dr-scheduled__2026-11-22T06:15:00+00:00','orders-dr','orders',0,'dr.orders',120,300,180,0,1,'digest',300,NULL,NULL,2.5,180000,1795373452840,1795373452840);
INSERT INTO "kafka_replication_range_outcomes" VALUES('airflow-orders-dr-scheduled__2026-11-22T06:15:00+00:00','orders-dr','orders',1,'dr.orders',40,90,0,0,NULL,'digest',40,'retention overran [40, 55)','approve the gap',0.0,0,1795373452844,NULL);
INSERT INTO "kafka_replication_range_outcomes" VALUES('airflow-orders-dr-scheduled__2026-11-22T06:30:00+00:00','orders-dr','orders',0,'dr.orders',300,480,0,0,NULL,'',NULL,'the worker was killed','run again',0.5,99,1795373452875,NULL);
CREATE TABLE kafka_replication_runs (
	sequence INTEGER NOT NULL, 
	run_id VARCHAR NOT NULL, 
	replication VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	"plan" TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	finished_at BIGINT, progress TEXT, expected_until BIGINT, 
	PRIMARY KEY (sequence), 
	UNIQUE (run_id)
);
INSERT INTO "kafka_replication_runs" VALUES(1,'airflow-orders-dr-scheduled__2026-11-22T06:00:00+00:00','orders-dr','live','done','{"format": 1, "replication": "orders-dr", "partitions": [{"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 0}, "target_topic": "dr.orders"}, "state": "behind", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 1, "start": 0, "position": 0, "source_end": 120, "watermark": null, "copy": [0, 120], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}, {"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 1}, "target_topic": "dr.orders"}, "state": "behind", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 1, "start": 5, "position": 5, "source_end": 40, "watermark": null, "copy": [5, 40], "verify": [], "leader_epoch": 3, "what": "", "remedy": ""}]}',1795373452803,1795373452826,NULL,NULL);
INSERT INTO "kafka_replication_runs" VALUES(2,'airflow-orders-dr-scheduled__2026-11-22T06:15:00+00:00','orders-dr','live','failed','{"format": 1, "replication": "orders-dr", "partitions": [{"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 0}, "target_topic": "dr.orders"}, "state": "behind", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 1, "start": 0, "position": 120, "source_end": 300, "watermark": 120, "copy": [120, 300], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}, {"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 1}, "target_topic": "dr.orders"}, "state": "retention overran", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 1, "start": 5, "position": 40, "source_end": 90, "watermark": 40, "copy": null, "verify": [], "leader_epoch": null, "what": "retention overran [40, 55)", "remedy": "approve the gap"}]}',1795373452829,1795373452852,NULL,NULL);
INSERT INTO "kafka_replication_runs" VALUES(3,'cli-backfill-1','orders-dr','backfill','nothing_to_do','{"format": 1, "replication": "orders-dr", "partitions": [{"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 0}, "target_topic": "restored.orders"}, "state": "behind", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 1, "start": 0, "position": 0, "source_end": 50, "watermark": null, "copy": [0, 50], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}]}',1795373452861,1795373452869,NULL,NULL);
INSERT INTO "kafka_replication_runs" VALUES(4,'airflow-orders-dr-scheduled__2026-11-22T06:30:00+00:00','orders-dr','live','planned','{"format": 1, "replication": "orders-dr", "partitions": [{"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 0}, "target_topic": "dr.orders"}, "state": "behind", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 1, "start": 0, "position": 300, "source_end": 480, "watermark": 300, "copy": [300, 480], "verify": [[280, 300]], "leader_epoch": 7, "what": "", "remedy": ""}, {"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 2}, "target_topic": "dr.orders"}, "state": "behind", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 1, "start": 10, "position": 10, "source_end": 20, "watermark": null, "copy": [10, 20], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}, {"key": {"replication": "orders-dr", "source": {"topic": "orders", "partition": 1}, "target_topic": "dr.orders"}, "state": "in sync", "ids": {"source_cluster": "SRCCLUSTER", "source_topic": "SrcTopicIdAAAAAAAAAAAA", "target_topic": "TgtTopicIdAAAAAAAAAAAA"}, "generation": 2, "start": 5, "position": 5, "source_end": 5, "watermark": 5, "copy": null, "verify": [], "leader_epoch": null, "what": "", "remedy": ""}]}',1795373452872,NULL,NULL,NULL);
CREATE TABLE kafka_replication_samples (
	replication VARCHAR NOT NULL, 
	span BIGINT NOT NULL, 
	at BIGINT NOT NULL, 
	run_id VARCHAR NOT NULL, 
	lag_records BIGINT, 
	lag_seconds FLOAT, 
	records BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	seconds FLOAT NOT NULL, 
	PRIMARY KEY (replication, span, at, run_id)
);
INSERT INTO "kafka_replication_samples" VALUES('orders-dr',60000,1795598700000,'airflow-orders-dr-scheduled__2026-11-22T06:00:00+00:00',NULL,NULL,153,4096,2.5);
INSERT INTO "kafka_replication_samples" VALUES('orders-dr',60000,1795598700000,'',180,12.5,0,0,0.0);
CREATE TABLE kafka_replication_schema (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "kafka_replication_schema" VALUES(8);
CREATE TABLE kafka_replication_standings (
	replication VARCHAR NOT NULL, 
	facts TEXT NOT NULL, 
	work TEXT, 
	measured_at BIGINT, 
	partition_count INTEGER NOT NULL, 
	lag_records BIGINT, 
	lag_seconds FLOAT, 
	partitions TEXT, 
	PRIMARY KEY (replication)
);
INSERT INTO "kafka_replication_standings" VALUES('orders-dr','{"source":"kafka_source","target":"kafka_target","schedule":"*/15 * * * *","topics":["orders"],"by_interval":false,"dags":[".audit",".backfill",".failed"]}','{"run_id":"airflow-orders-dr-scheduled__2026-11-22T06:00:00+00:00","records":153,"bytes":4096,"seconds":2.5,"at":"2026-11-25T09:25:04.718259Z"}',1795598704802,1,180,12.5,'[{"topic":"orders","partition":0,"target_topic":"dr.orders","state":"behind","lag":180,"lag_seconds":12.5}]');
CREATE TABLE kafka_replication_target_leases (
	replication VARCHAR NOT NULL, 
	owner VARCHAR NOT NULL, 
	holder VARCHAR, 
	waiting BOOLEAN NOT NULL, 
	topics TEXT NOT NULL, 
	process TEXT, 
	acquired_at BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	token BIGINT NOT NULL, 
	PRIMARY KEY (replication, owner)
);
CREATE TABLE kafka_replication_totals (
	replication VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	outcome VARCHAR NOT NULL, 
	value FLOAT NOT NULL, 
	PRIMARY KEY (replication, name, kind, outcome)
);
INSERT INTO "kafka_replication_totals" VALUES('orders-dr','records','','',153.0);
INSERT INTO "kafka_replication_totals" VALUES('orders-dr','bytes','','',15300.0);
INSERT INTO "kafka_replication_totals" VALUES('orders-dr','throttled_seconds','','',0.25);
INSERT INTO "kafka_replication_totals" VALUES('orders-dr','runs','live','done',1.0);
INSERT INTO "kafka_replication_totals" VALUES('orders-dr','ranges','','verified',2.0);
CREATE TABLE kafka_replication_watermark_history (
	replication VARCHAR NOT NULL, 
	source_topic VARCHAR NOT NULL, 
	source_partition INTEGER NOT NULL, 
	target_topic VARCHAR NOT NULL, 
	generation INTEGER NOT NULL, 
	source_topic_id VARCHAR NOT NULL, 
	target_topic_id VARCHAR NOT NULL, 
	next_offset BIGINT NOT NULL, 
	version BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	run_id VARCHAR NOT NULL, 
	PRIMARY KEY (replication, source_topic, source_partition, target_topic, version)
);
INSERT INTO "kafka_replication_watermark_history" VALUES('orders-dr','orders',0,'dr.orders',1,'SrcTopicIdAAAAAAAAAAAA','TgtTopicIdAAAAAAAAAAAA',120,1,1795373452808,'airflow-orders-dr-scheduled__2026-11-22T06:00:00+00:00');
INSERT INTO "kafka_replication_watermark_history" VALUES('orders-dr','orders',1,'dr.orders',1,'SrcTopicIdAAAAAAAAAAAA','TgtTopicIdAAAAAAAAAAAA',40,1,1795373452813,'airflow-orders-dr-scheduled__2026-11-22T06:00:00+00:00');
INSERT INTO "kafka_replication_watermark_history" VALUES('orders-dr','orders',0,'dr.orders',1,'SrcTopicIdAAAAAAAAAAAA','TgtTopicIdAAAAAAAAAAAA',300,2,1795373452834,'airflow-orders-dr-scheduled__2026-11-22T06:15:00+00:00');
INSERT INTO "kafka_replication_watermark_history" VALUES('orders-dr','orders',1,'dr.orders',2,'NewTopicIdAAAAAAAAAAAA','TgtTopicIdAAAAAAAAAAAA',5,2,1795373452856,'cli-host-1');
INSERT INTO "kafka_replication_watermark_history" VALUES('orders-dr','orders',0,'restored.orders',1,'SrcTopicIdAAAAAAAAAAAA','TgtTopicIdAAAAAAAAAAAA',4611686018427387904,1,1795373452866,'cli-backfill-1');
CREATE TABLE kafka_replication_watermarks (
	replication VARCHAR NOT NULL, 
	source_topic VARCHAR NOT NULL, 
	source_partition INTEGER NOT NULL, 
	target_topic VARCHAR NOT NULL, 
	generation INTEGER NOT NULL, 
	source_topic_id VARCHAR NOT NULL, 
	target_topic_id VARCHAR NOT NULL, 
	next_offset BIGINT NOT NULL, 
	version BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	run_id VARCHAR NOT NULL, 
	PRIMARY KEY (replication, source_topic, source_partition, target_topic)
);
INSERT INTO "kafka_replication_watermarks" VALUES('orders-dr','orders',0,'dr.orders',1,'SrcTopicIdAAAAAAAAAAAA','TgtTopicIdAAAAAAAAAAAA',300,2,1795373452834,'airflow-orders-dr-scheduled__2026-11-22T06:15:00+00:00');
INSERT INTO "kafka_replication_watermarks" VALUES('orders-dr','orders',1,'dr.orders',2,'NewTopicIdAAAAAAAAAAAA','TgtTopicIdAAAAAAAAAAAA',5,2,1795373452856,'cli-host-1');
INSERT INTO "kafka_replication_watermarks" VALUES('orders-dr','orders',0,'restored.orders',1,'SrcTopicIdAAAAAAAAAAAA','TgtTopicIdAAAAAAAAAAAA',4611686018427387904,1,1795373452866,'cli-backfill-1');
CREATE INDEX kafka_replication_runs_latest ON kafka_replication_runs (replication, sequence);
CREATE INDEX kafka_replication_runs_age ON kafka_replication_runs (replication, created_at);
CREATE INDEX kafka_replication_watermark_history_age ON kafka_replication_watermark_history (replication, updated_at);
CREATE INDEX kafka_replication_runs_open ON kafka_replication_runs (replication, state);
CREATE INDEX kafka_replication_range_outcomes_partition ON kafka_replication_range_outcomes (replication, source_topic, source_partition, target_topic, recorded_at);
CREATE INDEX kafka_replication_failed_records_state ON kafka_replication_failed_records (replication, state);
COMMIT;
