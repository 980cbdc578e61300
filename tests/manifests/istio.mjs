// Checks Istio's objects against the schemas that Istio publishes, as the npm package
// @kubernetes-models/istio has them. Arguments: the folder of the package; standard input: the
// objects as a JSON list. Run by `make check-manifests`.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const models = resolve(process.argv[2], "node_modules/@kubernetes-models/istio");
const objects = JSON.parse(readFileSync(0, "utf8"));
if (objects.length === 0) throw new Error("no objects");
for (const object of objects) {
  const module = await import(pathToFileURL(`${models}/${object.apiVersion}/${object.kind}.js`));
  new module[object.kind](object).validate();
  console.error(`${object.apiVersion} ${object.kind} ${object.metadata.name}: fulfils its schema`);
}
