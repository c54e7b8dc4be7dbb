#!/usr/bin/env python3
"""fpack, fverify and ftrain against another's S3 server: moto's, which proves signatures as IAM does.

usage: moto_test.py FPACK FVERIFY FRESIZE

Exit status 77: moto is not installed.
"""
import os
import subprocess
import sys
import tempfile

try:
    import boto3
    import botocore.exceptions
    import numpy
    from moto import settings
    from moto.server import ThreadedMotoServer
except ImportError as error:
    print("left out:", error)
    sys.exit(77)

fpack, fverify, fresize = sys.argv[1:4]
os.environ.update(AWS_ACCESS_KEY_ID="testing", AWS_SECRET_ACCESS_KEY="testing", AWS_DEFAULT_REGION="us-east-1", no_proxy="*")


def write_images(folder, count, edge):
    """Writes noise in two classes, and returns the folder."""
    random = numpy.random.default_rng(1)
    for i in range(count):
        path = os.path.join(folder, "train" if i > 3 else "val", "cat" if i % 2 else "dog")
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, f"{i}.ppm"), "wb") as file:
            file.write(b"P6\n%d %d\n255\n" % (edge, edge) + random.integers(0, 256, (edge, edge, 3), numpy.uint8).tobytes())
    return folder


def run(*command, environment=None, status=0):
    result = subprocess.run(command, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False)
    assert result.returncode == status, (command, result.returncode, result.stderr)
    return result.stderr


with tempfile.TemporaryDirectory() as folder:
    os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
    images = write_images(os.path.join(folder, "images"), 24, 1024)
    run(fpack, "-q", "--no-check", "--shard-size", "30M", images, os.path.join(folder, "here"))
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://127.0.0.1:{port}"
    os.environ["AWS_ENDPOINT_URL"] = endpoint

    s3 = boto3.client("s3", endpoint_url=endpoint)
    iam = boto3.client("iam", endpoint_url=endpoint)
    s3.create_bucket(Bucket="bucket")
    iam.create_user(UserName="packer")
    policy = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'
    iam.put_user_policy(UserName="packer", PolicyName="all", PolicyDocument=policy)
    key = iam.create_access_key(UserName="packer")["AccessKey"]
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0  # from now on every signature is proved
    good = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    wrong = {**good, "AWS_SECRET_ACCESS_KEY": "x" * 40}

    told = run(fpack, "--no-check", "--shard-size", "30M", images, "s3://bucket/sets/a b", environment=wrong, status=1)
    assert "403 Forbidden" in told and "x" * 40 not in told, told
    told = run(fpack, "--no-check", "--shard-size", "30M", images, "s3://bucket/sets/a b", environment=good)
    print(told)
    told = run(fverify, "s3://bucket/sets/a b", environment=good)
    print(told)
    assert "403 Forbidden" in run(fverify, "--cache-dir", os.path.join(folder, "other"), "s3://bucket/sets/a b", environment=wrong, status=1)

    client = boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"])
    names = [item["Key"] for item in client.list_objects_v2(Bucket="bucket")["Contents"]]
    here = [name for name in sorted(os.listdir(os.path.join(folder, "here"))) if not name.startswith(".")]
    assert sorted(names) == ["sets/a b/" + name for name in here], names
    for name in here:
        sent = client.get_object(Bucket="bucket", Key="sets/a b/" + name)
        body = sent["Body"].read()
        with open(os.path.join(folder, "here", name), "rb") as file:
            assert body == file.read(), name
        assert ("-" in sent["ETag"]) == (len(body) > 16 << 20), (name, sent["ETag"])  # multipart has "-N"
    assert not client.list_multipart_uploads(Bucket="bucket").get("Uploads")

    # Parts of two hosts, each with a cache of its own, merged by a third.
    for part in ("1/2", "2/2"):
        cache = {"XDG_CACHE_HOME": os.path.join(folder, "cache-" + part[0])}
        run(fpack, "--no-check", "--shard-size", "30M", "--part", part, images, "s3://bucket/parts", environment={**good, **cache})
    run(fpack, "--merge", "s3://bucket/parts", environment=good)
    names = [item["Key"] for item in client.list_objects_v2(Bucket="bucket", Prefix="parts/")["Contents"]]
    assert sorted(names) == ["parts/" + name for name in here], names
    for name in here:
        with open(os.path.join(folder, "here", name), "rb") as file:
            assert client.get_object(Bucket="bucket", Key="parts/" + name)["Body"].read() == file.read(), name

    # A tar from one key to another.
    subprocess.run(["tar", "-cf", os.path.join(folder, "photos.tar"), "-C", images, "."], check=True)
    client.upload_file(os.path.join(folder, "photos.tar"), "bucket", "tars/photos.tar")
    print(run(fresize, "--max-size", "1000", "s3://bucket/tars/photos.tar", "s3://bucket/tars/small.tar", environment=good))
    run(fresize, "-q", "--max-size", "1000", os.path.join(folder, "photos.tar"), os.path.join(folder, "small.tar"))
    sent = client.get_object(Bucket="bucket", Key="tars/small.tar")
    with open(os.path.join(folder, "small.tar"), "rb") as file:
        assert sent["Body"].read() == file.read()
    assert "-" in sent["ETag"], sent["ETag"]
    assert not client.list_multipart_uploads(Bucket="bucket").get("Uploads")
    told = run(fresize, "--max-size", "1000", "s3://bucket/tars/photos.tar", "s3://bucket/tars/other.tar", environment=wrong, status=1)
    assert "403 Forbidden" in told and "x" * 40 not in told, told
    try:
        boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=key["AccessKeyId"], aws_secret_access_key="x" * 40).list_objects_v2(Bucket="bucket")
        raise AssertionError("the server proves no signatures")
    except botocore.exceptions.ClientError as error:
        assert error.response["Error"]["Code"] == "SignatureDoesNotMatch", error
    server.stop()
print("moto: sent, proved, fetched and verified")
