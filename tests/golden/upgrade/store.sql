BEGIN TRANSACTION;
CREATE TABLE kafka_replication_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT kafka_replication_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "kafka_replication_alembic_version" VALUES('0006');
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
CREATE TABLE kafka_replication_boundaries (
	replication VARCHAR NOT NULL, 
	source_topic VARCHAR NOT NULL, 
	source_partition INTEGER NOT NULL, 
	source_topic_id VARCHAR NOT NULL, 
	time BIGINT NOT NULL, 
	next_offset BIGINT NOT NULL, 
	PRIMARY KEY (replication, source_topic, source_partition, source_topic_id, time)
);
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
INSERT INTO "kafka_replication_leases" VALUES('{name}','old-run',0,1795374499298,1795374502332,2,NULL);
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
INSERT INTO "kafka_replication_range_outcomes" VALUES('first-run','{name}','{topic}',0,'{topic}',0,60,60,0,1,'digest',60,NULL,NULL,0.908,6170,1795374498936,1795374498936);
INSERT INTO "kafka_replication_range_outcomes" VALUES('first-run','{name}','{topic}',1,'{topic}',0,50,50,0,1,'digest',50,NULL,NULL,0.4,5250,1795374499000,1795374499000);
INSERT INTO "kafka_replication_range_outcomes" VALUES('old-run','{name}','{topic}',0,'{topic}',60,100,0,0,NULL,'',NULL,NULL,NULL,0.511,4120,1795374500312,NULL);
INSERT INTO "kafka_replication_range_outcomes" VALUES('old-run','{name}','{topic}',1,'{topic}',50,80,0,0,NULL,'',NULL,'not copied: [50, 80)','run again',0.0,0,1795374500351,NULL);
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
INSERT INTO "kafka_replication_runs" VALUES(1,'first-run','{name}','live','done','{"format": 1, "replication": "{name}", "partitions": [{"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 0}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 0, "position": 0, "source_end": 60, "watermark": null, "copy": [0, 60], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 1}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 0, "position": 0, "source_end": 50, "watermark": null, "copy": [0, 50], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}]}',1795374495961,1795374499062,NULL,NULL);
INSERT INTO "kafka_replication_runs" VALUES(2,'old-run','{name}','live','planned','{"format": 1, "replication": "{name}", "partitions": [{"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 0}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 0, "position": 60, "source_end": 100, "watermark": 60, "copy": [60, 100], "verify": [], "leader_epoch": 0, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 1}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 0, "position": 50, "source_end": 80, "watermark": 50, "copy": [50, 80], "verify": [], "leader_epoch": 0, "what": "", "remedy": ""}]}',1795374499671,NULL,NULL,NULL);
CREATE TABLE kafka_replication_schema (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "kafka_replication_schema" VALUES(6);
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
INSERT INTO "kafka_replication_watermark_history" VALUES('{name}','{topic}',0,'{topic}',1,'{source_topic_id}','{target_topic_id}',60,1,1795374498714,'first-run');
INSERT INTO "kafka_replication_watermark_history" VALUES('{name}','{topic}',1,'{topic}',1,'{source_topic_id}','{target_topic_id}',50,1,1795374498760,'first-run');
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
INSERT INTO "kafka_replication_watermarks" VALUES('{name}','{topic}',0,'{topic}',1,'{source_topic_id}','{target_topic_id}',60,1,1795374498714,'first-run');
INSERT INTO "kafka_replication_watermarks" VALUES('{name}','{topic}',1,'{topic}',1,'{source_topic_id}','{target_topic_id}',50,1,1795374498760,'first-run');
CREATE INDEX kafka_replication_runs_latest ON kafka_replication_runs (replication, sequence);
CREATE INDEX kafka_replication_runs_age ON kafka_replication_runs (replication, created_at);
CREATE INDEX kafka_replication_watermark_history_age ON kafka_replication_watermark_history (replication, updated_at);
CREATE INDEX kafka_replication_runs_open ON kafka_replication_runs (replication, state);
COMMIT;
