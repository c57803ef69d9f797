// SPDX-License-Identifier: Apache-2.0 OR MIT
// A Qt program without a screen: widgets, timers, models, painting. The same work, round after
// round; prints the digest of a round, which must be the same in each.
//
// usage: QT_QPA_PLATFORM=offscreen qt_app SECONDS
#include <QtWidgets>

#include <cstdio>

static void fill(QTableWidget &table)
{
	for (int row = 0; row < table.rowCount(); row++)
		for (int column = 0; column < table.columnCount(); column++)
			table.setItem(row, column, new QTableWidgetItem(QString::number(row * column)));
	table.sortItems(1, Qt::DescendingOrder);
}

// Paints without text: fonts differ between machines and the moment they are loaded.
static QImage paint()
{
	QImage image(200, 200, QImage::Format_RGB32);
	image.fill(Qt::white);

	QPainter painter(&image);
	painter.setRenderHint(QPainter::Antialiasing);
	for (int i = 0; i < 40; i++) {
		painter.setPen(QColor::fromHsv(i * 9, 200, 200));
		painter.drawEllipse(QPoint(100, 100), i * 2, 80 - i * 2);
	}
	return image;
}

static QByteArray round_digest(QTableWidget &table, QLineEdit &line, QCheckBox &box)
{
	QCryptographicHash hash(QCryptographicHash::Sha1);

	fill(table);
	for (int row = 0; row < table.rowCount(); row++)
		hash.addData(table.item(row, 1)->text().toUtf8());
	line.setText(QStringLiteral("one two three"));
	const QStringList words = line.text().split(QRegularExpression(QStringLiteral("\\s+")));
	hash.addData(words.join(QLatin1Char('|')).toUtf8());
	box.toggle();
	box.toggle();
	hash.addData(box.isChecked() ? "on" : "off", 2);

	const QImage image = paint();
	hash.addData(reinterpret_cast<const char *>(image.constBits()), static_cast<int>(image.sizeInBytes()));

	const QJsonObject object{{"rows", table.rowCount()}, {"words", QJsonArray::fromStringList(words)}};
	hash.addData(QJsonDocument(object).toJson());
	return hash.result().toHex();
}

int main(int argc, char **argv)
{
	QApplication application(argc, argv);
	const int seconds = argc > 1 ? atoi(argv[1]) : 1;
	QWidget window;
	QVBoxLayout layout(&window);
	QTableWidget table(20, 5);
	QLineEdit line;
	QCheckBox box;
	QByteArray first;
	bool same = true;

	for (QWidget *widget : {static_cast<QWidget *>(&table), static_cast<QWidget *>(&line), static_cast<QWidget *>(&box)})
		layout.addWidget(widget);
	window.resize(400, 300);
	window.show();

	QTimer timer;
	QObject::connect(&timer, &QTimer::timeout, [&] {
		const QByteArray digest = round_digest(table, line, box);

		if (first.isEmpty())
			first = digest;
		same = same && digest == first;
		window.update();
	});
	timer.start(20);
	QTimer::singleShot(seconds * 1000, &application, &QApplication::quit);
	const int code = application.exec();

	printf("digest %s, %s\n", first.constData(), same ? "the same in each round" : "not the same in each round");
	return code;
}
